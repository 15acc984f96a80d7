{{/* Names must be asked for, at all destinations of networkPolicy.dnsTo. */}}
{{- define "poolhouse.network.dns" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
  {{- with .Values.networkPolicy.dnsTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* Metrics of one port: (dict "ctx" $ "port" "admin"). The machine's own probes are always let in. */}}
{{- define "poolhouse.network.metrics" -}}
- ports:
    - {protocol: TCP, port: {{ .port }}}
  {{- with .ctx.Values.networkPolicy.metricsFrom }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The internet and other pods, but no link-local address and no Service: (dict "ctx" $). */}}
{{- define "poolhouse.network.outside" -}}
{{- $four := list "169.254.0.0/16" -}}
{{- $six := list "fe80::/10" "fd00:ec2::254/128" -}}
{{- range .ctx.Values.networkPolicy.serviceCIDRs -}}
{{- if contains ":" . }}{{ $six = append $six . }}{{ else }}{{ $four = append $four . }}{{ end -}}
{{- end -}}
- ipBlock:
    cidr: 0.0.0.0/0
    except:
      {{- toYaml $four | nindent 6 }}
- ipBlock:
    cidr: ::/0
    except:
      {{- toYaml $six | nindent 6 }}
{{- end -}}

{{/* A policy for devices: (dict "ctx" $ "component" "node" "name"). */}}
{{- define "poolhouse.network.devices" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
{{ include "poolhouse.metadata" . }}
spec:
  podSelector:
    matchLabels:
      {{- include "poolhouse.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    # Direct paths: a device is reached at a port that it tells its peer.
    - ports:
        - {protocol: UDP, port: 1024, endPort: 65535}
    {{- include "poolhouse.network.metrics" (dict "ctx" .ctx "port" "metrics") | nindent 4 }}
  egress:
    {{- include "poolhouse.network.dns" .ctx | nindent 4 }}
    {{- if .ctx.Values.control.enabled }}
    - ports:
        - {protocol: TCP, port: http}
      to:
        - podSelector:
            matchLabels:
              {{- include "poolhouse.selectorLabels" (dict "ctx" .ctx "component" "control") | nindent 14 }}
    {{- end }}
    # Peers and relays by UDP, relays and models by TCP. Peers choose where a device sends: it must
    # not be into the cluster's Services or to the address that clouds tell secrets at.
    - to:
        {{- include "poolhouse.network.outside" . | nindent 8 }}
    {{- with .ctx.Values.networkPolicy.nodeEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
