{{/* Variables of `poolhouse turn config`, as YAML. */}}
{{- define "poolhouse.relay.env" -}}
{{- $relay := .Values.relay -}}
{{- $env := dict
  "POOLHOUSE_COTURN_REALM" (default $relay.host $relay.realm)
  "POOLHOUSE_COTURN_PORT" $relay.port
  "POOLHOUSE_COTURN_TLS_PORT" $relay.tlsPort
  "POOLHOUSE_COTURN_MIN_PORT" $relay.minPort
  "POOLHOUSE_COTURN_MAX_PORT" $relay.maxPort
  "POOLHOUSE_COTURN_LOG" "stdout"
  "POOLHOUSE_COTURN_PIDFILE" "/tmp/turnserver.pid"
  "POOLHOUSE_COTURN_USERDB" "/tmp/turndb"
  "POOLHOUSE_COTURN_RUN_AS" ""
  "POOLHOUSE_TURN_SECRET_FILE" (printf "/run/secrets/poolhouse/turn-secret-file/%s" .Values.turn.secret.key)
  "POOLHOUSE_TURN_LABELS" (get (default dict .Values.control.settings) "POOLHOUSE_TURN_LABELS" | default "0")
-}}
{{- /* The machine has other addresses, of bridges to its pods: the relay uses none of those. */ -}}
{{- $_ := set $env "POOLHOUSE_COTURN_LISTENING_IPS" (dict "fieldRef" (dict "fieldPath" "status.hostIP")) -}}
{{- $_ := set $env "POOLHOUSE_COTURN_RELAY_IPS" (dict "fieldRef" (dict "fieldPath" "status.hostIP")) -}}
{{- if $relay.tls.secretName -}}
{{- $_ := set $env "POOLHOUSE_COTURN_TLS_CERT" "/run/secrets/poolhouse/tls/tls.crt" -}}
{{- $_ := set $env "POOLHOUSE_COTURN_TLS_KEY" "/run/secrets/poolhouse/tls/tls.key" -}}
{{- end -}}
{{- /* Variables in values are seen only when they come first in the list, so this one is last. Two
devices that both use the relay meet at its private address. */ -}}
{{- $last := list -}}
{{- if $relay.externalIP -}}
{{- $last = list (dict "name" "POOLHOUSE_COTURN_EXTERNAL_IPS" "value" (printf "%s/$(POOLHOUSE_COTURN_LISTENING_IPS)" $relay.externalIP)) (dict "name" "POOLHOUSE_COTURN_ALLOWED_PEERS" "value" "$(POOLHOUSE_COTURN_LISTENING_IPS)") -}}
{{- end -}}
{{- include "poolhouse.env" (dict "plain" $env "settings" $relay.settings "more" $last "where" "relay.settings") -}}
{{- end -}}
