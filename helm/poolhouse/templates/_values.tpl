{{/* `over` laid over `base`, as JSON: (dict "base" "over"). Unlike the merge functions it takes false,
0 and empty values for what they are; null takes a key out. */}}
{{- define "poolhouse.overlay" -}}
{{- $out := deepCopy .base -}}
{{- range $key, $value := .over -}}
  {{- $below := get $out $key -}}
  {{- if kindIs "invalid" $value -}}
    {{- $_ := unset $out $key -}}
  {{- else if and (kindIs "map" $value) (kindIs "map" $below) -}}
    {{- $_ := set $out $key (include "poolhouse.overlay" (dict "base" $below "over" $value) | fromJson) -}}
  {{- else -}}
    {{- $_ := set $out $key $value -}}
  {{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* A pool with its defaults: (dict "ctx" $ "pool" values). */}}
{{- define "poolhouse.pool" -}}
{{- include "poolhouse.overlay" (dict "base" .ctx.Values.nodes.defaults "over" (default dict .pool)) -}}
{{- end -}}

{{- define "poolhouse.image" -}}
{{- $name := .image.repository -}}
{{- with .registry }}{{ $name = printf "%s/%s" (trimSuffix "/" .) $name }}{{ end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .tag .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* A whole number or a text as the text of a variable; 1e+06 is none that programs read. */}}
{{- define "poolhouse.text" -}}
{{- if kindIs "bool" . -}}
{{- ternary "1" "0" . -}}
{{- else if and (kindIs "float64" .) (eq (float64 (int64 .)) .) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* Variables of a container: (dict "plain" dict "settings" dict "more" list "where"), as YAML. The
chart's own, then those of the person; a name that is there twice fails. */}}
{{- define "poolhouse.env" -}}
{{- $seen := dict -}}
{{- $list := list -}}
{{- range $name, $value := merge (dict) .plain (default dict .settings) -}}
  {{- $_ := set $seen $name true -}}
  {{- if kindIs "map" $value -}}
    {{- $list = append $list (dict "name" $name "valueFrom" $value) -}}
  {{- else -}}
    {{- $list = append $list (dict "name" $name "value" (include "poolhouse.text" $value)) -}}
  {{- end -}}
{{- end -}}
{{- range .more -}}
  {{- if hasKey $seen .name -}}
    {{- fail (printf "%s: %s is set by the chart, or twice: remove it." $.where .name) -}}
  {{- end -}}
  {{- $_ := set $seen .name true -}}
  {{- $list = append $list . -}}
{{- end -}}
{{- toYaml $list -}}
{{- end -}}

{{/* Where devices of this release meet. The Service's name is in no certificate: with TLS it is the
public address. */}}
{{- define "poolhouse.signal" -}}
{{- if .Values.nodes.signal -}}
{{- .Values.nodes.signal -}}
{{- else if .Values.control.tls.secretName -}}
{{- include "poolhouse.control.publicUrl" . -}}
{{- else -}}
{{- include "poolhouse.serviceUrl" . -}}
{{- end -}}
{{- end -}}

{{- define "poolhouse.serviceUrl" -}}
{{- $scheme := ternary "https" "http" (ne .Values.control.tls.secretName "") -}}
{{- printf "%s://%s.%s.svc:%d" $scheme (include "poolhouse.name" (dict "ctx" . "suffix" "control")) .Release.Namespace (int .Values.control.service.port) -}}
{{- end -}}
