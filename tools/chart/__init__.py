"""What of the Helm chart is made from other files: its schema, its README, copies from deploy/."""
