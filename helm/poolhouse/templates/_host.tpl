{{/* The host's values: those of every node, and its own over them. */}}
{{- define "poolhouse.host" -}}
{{- include "poolhouse.overlay" (dict "base" .Values.nodes.defaults "over" .Values.host) -}}
{{- end -}}

{{- define "poolhouse.host.args" -}}
{{- $args := list "host" (printf "--wait=%d" (int .wait)) -}}
{{- if .denyUnknown }}{{ $args = append $args "--deny-unknown" }}{{ end -}}
{{- range $name, $value := default dict .options -}}
{{- $args = append $args (printf "--%s=%s" $name (include "poolhouse.text" $value)) -}}
{{- end -}}
{{- toJson $args -}}
{{- end -}}
