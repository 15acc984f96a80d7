"""What Prometheus and Grafana are told about poolhouse, made and checked from the code's series."""
