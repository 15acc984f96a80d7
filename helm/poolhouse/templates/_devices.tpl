{{/* Where a device keeps what, as its image has it. */}}
{{- define "poolhouse.device.folders" -}}
POOLHOUSE_STATE: /var/lib/poolhouse
POOLHOUSE_CACHE: /var/cache/poolhouse
TRITON_CACHE_DIR: /var/cache/poolhouse-kernels
NUMBA_CACHE_DIR: /var/cache/poolhouse-kernels
{{- end -}}

{{/* Secrets of a device: (dict "of" workload "link" variable of the invite link). */}}
{{- define "poolhouse.device.secrets" -}}
{{- $used := dict .link .of.roomSecret -}}
{{- if .of.apiTokenSecret.name }}{{ $_ := set $used "POOLHOUSE_API_TOKEN_FILE" .of.apiTokenSecret }}{{ end -}}
{{- if .of.iceSecret.name }}{{ $_ := set $used "POOLHOUSE_ICE" .of.iceSecret }}{{ end -}}
{{- toJson $used -}}
{{- end -}}

{{/* Variables of a device that the chart decides: (dict "ctx" $ "of" "secrets" "own" dict). */}}
{{- define "poolhouse.device.env" -}}
{{- $env := include "poolhouse.device.folders" . | fromYaml -}}
{{- $_ := set $env "POOLHOUSE_NAME" (dict "fieldRef" (dict "fieldPath" "metadata.name")) -}}
{{- $_ := set $env "POOLHOUSE_SIGNAL" (include "poolhouse.signal" .ctx) -}}
{{- $_ := set $env "POOLHOUSE_DEVICE" .of.device -}}
{{- with .of.pledgeGB }}{{ $_ := set $env "POOLHOUSE_PLEDGE" (toString .) }}{{ end -}}
{{- $_ := set $env "POOLHOUSE_METRICS_BIND" .ctx.Values.listenAddress -}}
{{- $_ := set $env "POOLHOUSE_METRICS_PORT" (include "poolhouse.text" .of.metricsPort) -}}
{{- with .of.udpPorts }}{{ $_ := set $env "POOLHOUSE_UDP_PORTS" . }}{{ end -}}
{{- range $variable, $secret := .secrets -}}
{{- $_ := set $env $variable (printf "/run/secrets/poolhouse/%s/%s" (include "poolhouse.secretFolder" $variable) $secret.key) -}}
{{- end -}}
{{- toJson (merge $env .own) -}}
{{- end -}}

{{/* Resources: memory for what is pledged and 4 GiB (page cache, pinned buffers), and the card. Without a
pledge the limit on memory comes from values, and Kubernetes requests as much. */}}
{{- define "poolhouse.device.resources" -}}
{{- $amounts := dict "requests" dict "limits" dict -}}
{{- if .of.pledgeGB -}}
{{- $memory := printf "%dGi" (ceil (addf .of.pledgeGB 4) | int) -}}
{{- $amounts = dict "requests" (dict "memory" $memory) "limits" (dict "memory" $memory) -}}
{{- end -}}
{{- $gpu := .of.gpu -}}
{{- if and (eq .of.device "cuda") $gpu.resource -}}
{{- $_ := set $amounts.limits $gpu.resource (int $gpu.count) -}}
{{- $_ := set $amounts.requests $gpu.resource (int $gpu.count) -}}
{{- end -}}
{{- include "poolhouse.overlay" (dict "base" $amounts "over" (default dict .of.resources)) | fromJson | toYaml -}}
{{- end -}}

{{- define "poolhouse.device.tolerations" -}}
{{- $own := list -}}
{{- if and (eq .of.device "cuda") .of.gpu.toleration .of.gpu.resource -}}
{{- $own = append $own (dict "key" .of.gpu.resource "operator" "Exists" "effect" "NoSchedule") -}}
{{- end -}}
{{- with concat $own (default list .of.tolerations) }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Affinity: (dict "of" and those of poolhouse.selectorLabels). */}}
{{- define "poolhouse.device.affinity" -}}
{{- if .of.affinity }}
affinity:
  {{- toYaml .of.affinity | nindent 2 }}
{{- else if .of.sameZone }}
affinity:
  podAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 50
        podAffinityTerm:
          topologyKey: topology.kubernetes.io/zone
          labelSelector:
            matchLabels:
              {{- include "poolhouse.selectorLabels" . | nindent 14 }}
{{- end }}
{{- end -}}

{{- define "poolhouse.device.volumes" -}}
- name: tmp
  emptyDir: {}
- name: kernels
  emptyDir: {}
{{- if not .of.state.persistent }}
- name: state
  emptyDir: {}
{{- end }}
{{- $cache := .of.cache }}
{{- if eq $cache.type "existingClaim" }}
- name: cache
  persistentVolumeClaim:
    claimName: {{ $cache.existingClaim | quote }}
    readOnly: {{ $cache.readOnly }}
{{- else if eq $cache.type "hostPath" }}
- name: cache
  hostPath:
    path: {{ $cache.hostPath | quote }}
    type: DirectoryOrCreate
{{- else if eq $cache.type "emptyDir" }}
- name: cache
  emptyDir:
    sizeLimit: {{ $cache.size | quote }}
{{- end }}
{{- with .of.sharedMemory }}
- name: shared-memory
  emptyDir:
    medium: Memory
    sizeLimit: {{ . | quote }}
{{- end }}
{{- range $variable, $secret := .secrets }}
{{ include "poolhouse.secretVolume" (dict "name" (include "poolhouse.secretFolder" $variable) "secret" $secret) }}
{{- end }}
{{- with .of.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "poolhouse.device.mounts" -}}
{{- $folders := include "poolhouse.device.folders" . | fromYaml -}}
- name: tmp
  mountPath: /tmp
- name: state
  mountPath: {{ $folders.POOLHOUSE_STATE }}
- name: cache
  mountPath: {{ $folders.POOLHOUSE_CACHE }}
  readOnly: {{ .of.cache.readOnly }}
- name: kernels
  mountPath: {{ $folders.TRITON_CACHE_DIR }}
{{- if .of.sharedMemory }}
- name: shared-memory
  mountPath: /dev/shm
{{- end }}
{{- range $variable, $secret := .secrets }}
- name: {{ include "poolhouse.secretFolder" $variable | quote }}
  mountPath: /run/secrets/poolhouse/{{ include "poolhouse.secretFolder" $variable }}
  readOnly: true
{{- end }}
{{- with .of.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Claims of each pod. They cannot change: no label here tells a version. */}}
{{- define "poolhouse.device.claims" -}}
{{- $labels := include "poolhouse.selectorLabels" . | fromYaml -}}
{{- $claims := list -}}
{{- if .of.state.persistent }}{{ $claims = append $claims (dict "name" "state" "of" .of.state) }}{{ end -}}
{{- if eq .of.cache.type "claim" }}{{ $claims = append $claims (dict "name" "cache" "of" .of.cache) }}{{ end -}}
{{- with $claims }}
volumeClaimTemplates:
  {{- range . }}
  - metadata:
      name: {{ .name | quote }}
      labels:
        {{- toYaml $labels | nindent 8 }}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .of.storageClass }}
      storageClassName: {{ . | quote }}
      {{- end }}
      resources:
        requests:
          storage: {{ .of.size | quote }}
  {{- end }}
{{- end }}
{{- end -}}
