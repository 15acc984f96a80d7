{{/* More than one replica, now or later. */}}
{{- define "poolhouse.control.severalReplicas" -}}
{{- $control := .Values.control -}}
{{- if or $control.autoscaling.enabled (gt (int $control.replicas) 1) }}true{{ end -}}
{{- end -}}

{{- define "poolhouse.control.publicUrl" -}}
{{- $control := .Values.control -}}
{{- if $control.publicUrl -}}
{{- $control.publicUrl -}}
{{- else if and $control.ingress.enabled $control.ingress.hosts -}}
{{- printf "%s://%s" (ternary "https" "http" (not (empty $control.ingress.tls))) (first $control.ingress.hosts) -}}
{{- else if and $control.httpRoute.enabled $control.httpRoute.hostnames -}}
{{- printf "https://%s" (first $control.httpRoute.hostnames) -}}
{{- end -}}
{{- end -}}

{{/* Secrets with one file that the control plane reads, by the variable that names the file. */}}
{{- define "poolhouse.control.secrets" -}}
{{- $all := dict
  "POOLHOUSE_REDIS_URL_FILE" .Values.redis.urlSecret
  "POOLHOUSE_TURN_SECRET_FILE" .Values.turn.secret
  "POOLHOUSE_TURN_KEY_API_TOKEN_FILE" .Values.turn.cloudflare.tokenSecret
  "POOLHOUSE_TURN_ICE_SERVERS_FILE" .Values.turn.iceServersSecret
  "POOLHOUSE_API_TOKENS_FILE" .Values.control.apiTokensSecret -}}
{{- $used := dict -}}
{{- range $variable, $secret := $all -}}
{{- if $secret.name }}{{ $_ := set $used $variable $secret }}{{ end -}}
{{- end -}}
{{- toJson $used -}}
{{- end -}}

{{/* Folder of a secret: POOLHOUSE_TURN_SECRET_FILE is in /run/secrets/poolhouse/turn-secret-file. */}}
{{- define "poolhouse.secretFolder" -}}
{{- . | trimPrefix "POOLHOUSE_" | lower | replace "_" "-" -}}
{{- end -}}

{{- define "poolhouse.control.relayUrls" -}}
{{- $urls := default list .Values.turn.urls -}}
{{- with .Values.relay -}}
{{- if .enabled -}}
  {{- $host := default .externalIP .host -}}
  {{- $plain := printf "turn:%s:%d" $host (int .port) -}}
  {{- $urls = concat $urls (list $plain (printf "%s?transport=tcp" $plain)) -}}
  {{- if .tls.secretName }}{{ $urls = append $urls (printf "turns:%s:%d" $host (int .tlsPort)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- join "," $urls -}}
{{- end -}}

{{/* UDP ports at which the control plane asks relays whether they are there, as a JSON list. */}}
{{- define "poolhouse.control.relayPorts" -}}
{{- $ports := list -}}
{{- range splitList "," (include "poolhouse.control.relayUrls" .) -}}
  {{- $isPlain := and (regexMatch "^(turn|stun):" .) (not (contains "?" .)) -}}
  {{- if or $isPlain (hasSuffix "?transport=udp" .) -}}
  {{- $given := regexFind ":[0-9]+(\\?|$)" . | trimPrefix ":" | trimSuffix "?" -}}
  {{- $ports = append $ports (default (ternary 5349 3478 (hasPrefix "turns:" .)) $given | int) -}}
  {{- end -}}
{{- end -}}
{{- if and (not (include "poolhouse.control.relayUrls" .)) (get (default dict .Values.control.settings) "POOLHOUSE_TURN_HOST") -}}
{{- $ports = list 3478 -}}
{{- end -}}
{{- toJson (uniq $ports) -}}
{{- end -}}

{{/* Variables that the chart decides. */}}
{{- define "poolhouse.control.env" -}}
{{- $control := .Values.control -}}
{{- $env := dict
  "POOLHOUSE_HOST" .Values.listenAddress
  "POOLHOUSE_PORT" "8080"
  "POOLHOUSE_ADMIN_HOST" .Values.listenAddress
  "POOLHOUSE_ADMIN_PORT" "9090"
  "POOLHOUSE_LOG_FORMAT" "json"
  "POOLHOUSE_REPLICAS" (ternary $control.autoscaling.maxReplicas $control.replicas $control.autoscaling.enabled) -}}
{{- $optional := dict
  "POOLHOUSE_PUBLIC_URL" (include "poolhouse.control.publicUrl" .)
  "POOLHOUSE_ORIGINS" (join "," $control.origins)
  "POOLHOUSE_TRUSTED_PROXIES" (join "," $control.trustedProxies)
  "POOLHOUSE_TURN_URLS" (include "poolhouse.control.relayUrls" .)
  "POOLHOUSE_TURN_KEY_ID" .Values.turn.cloudflare.keyId -}}
{{- if .Values.redis.urlSecret.name -}}
  {{- $_ := set $optional "POOLHOUSE_REDIS_CLUSTER" (ternary "1" "" .Values.redis.cluster) -}}
  {{- $own := include "poolhouse.fit" (dict "name" (printf "%s:%s" .Release.Namespace .Release.Name) "max" 32) -}}
  {{- $_ := set $env "POOLHOUSE_REDIS_PREFIX" (default $own .Values.redis.prefix) -}}
  {{- $_ := set $env "POOLHOUSE_DRAIN_DELAY_S" $control.drain.delaySeconds -}}
  {{- $_ := set $env "POOLHOUSE_DRAIN_SPREAD_S" $control.drain.spreadSeconds -}}
{{- end -}}
{{- if $control.tls.secretName -}}
  {{- $_ := set $env "POOLHOUSE_TLS_CERT" "/run/secrets/poolhouse/tls/tls.crt" -}}
  {{- $_ := set $env "POOLHOUSE_TLS_KEY" "/run/secrets/poolhouse/tls/tls.key" -}}
{{- end -}}
{{- if not (or .Values.nodes.signal $control.tls.secretName) -}}
  {{- /* Nodes say this address as their origin; over plain http it must be allowed. */ -}}
  {{- $said := get (default dict $control.settings) "POOLHOUSE_TURN_ALLOWED_ORIGINS" -}}
  {{- $_ := set $optional "POOLHOUSE_TURN_ALLOWED_ORIGINS" (join "," (compact (list (include "poolhouse.serviceUrl" .) $said))) -}}
{{- end -}}
{{- range $name, $value := $optional -}}
{{- if $value }}{{ $_ := set $env $name $value }}{{ end -}}
{{- end -}}
{{- range $variable, $secret := include "poolhouse.control.secrets" . | fromJson -}}
{{- $_ := set $env $variable (printf "/run/secrets/poolhouse/%s/%s" (include "poolhouse.secretFolder" $variable) $secret.key) -}}
{{- end -}}
{{- toJson $env -}}
{{- end -}}
