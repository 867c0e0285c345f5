{{- /* Parts of pods with security.enabled: settings, mounts and volumes for TLS, tokens and the users of a role. */ -}}

{{- /* Secrets of a role's tokens and users, as JSON. Takes the role. */ -}}
{{- define "secretsOf" -}}
{{- $tokens := dict "gateway" "tokens-write" "store" "tokens-read" "querier" "tokens-read" "ruler" "tokens-read" -}}
{{- $users := dict "chunker" "kafka-chunk-stage" "spark" "kafka-chunk-stage" -}}
{{- dict "tokens" (get $tokens . | default "tokens-operate") "kafka" (get $users . | default (printf "kafka-%s" .)) | toJson -}}
{{- end }}

{{- define "readsHistory" -}}
{{- if has . (list "loader" "querier" "ruler" "spark" "setup") }}true{{ end -}}
{{- end }}

{{- /* The user of Cassandra of a role. Rulers read as queriers do. */ -}}
{{- define "cassandraUser" -}}
cassandra-{{ eq . "ruler" | ternary "querier" . }}
{{- end }}

{{- define "kafkaEnv" -}}
- {name: TSDB_KAFKA_SECURITY_PROTOCOL, value: SSL}
- {name: TSDB_KAFKA_SSL_CA_FILE, value: /etc/kafka-tsdb-kafka-ca/ca.crt}
- {name: TSDB_KAFKA_SSL_CERTIFICATE_FILE, value: /etc/kafka-tsdb-kafka/user.crt}
- {name: TSDB_KAFKA_SSL_KEY_FILE, value: /etc/kafka-tsdb-kafka/user.key}
{{- end }}

{{- define "cassandraName" -}}
- name: TSDB_CASSANDRA_USERNAME
  valueFrom: {secretKeyRef: {name: {{ include "cassandraUser" . }}, key: username}}
{{- end }}

{{- define "cassandraFiles" -}}
- {name: TSDB_CASSANDRA_PASSWORD_FILE, value: /etc/kafka-tsdb-cassandra/password}
- {name: TSDB_CASSANDRA_SSL_CA_FILE, value: /etc/kafka-tsdb-cassandra/ca.crt}
{{- end }}

{{- /* Variables of a server. Takes the role. */ -}}
{{- define "secureEnv" -}}
- {name: TSDB_TLS_CERT_FILE, value: /etc/kafka-tsdb-tls/tls.crt}
- {name: TSDB_TLS_KEY_FILE, value: /etc/kafka-tsdb-tls/tls.key}
- {name: TSDB_TOKEN_FILE, value: /etc/kafka-tsdb-tokens/tokens}
{{ include "kafkaEnv" . }}
{{- if eq . "spark" }}
{{ include "cassandraFiles" . }}
{{ include "cassandraName" . }}
{{- else if include "readsHistory" . }}
{{ include "cassandraName" . }}
{{ include "cassandraFiles" . }}
{{- end }}
{{- if has . (list "querier" "ruler") }}
- {name: TSDB_STORE_TLS, value: "true"}
- {name: TSDB_STORE_TLS_CA_FILE, value: /etc/kafka-tsdb-tls/ca.crt}
- {name: TSDB_STORE_TOKEN_FILE, value: /etc/kafka-tsdb-tokens/store-token}
{{- end }}
{{- end }}

{{- define "tlsMount" -}}
- {name: tls, mountPath: /etc/kafka-tsdb-tls, readOnly: true}
{{- end }}

{{- define "userMounts" -}}
- {name: kafka, mountPath: /etc/kafka-tsdb-kafka, readOnly: true}
- {name: kafka-ca, mountPath: /etc/kafka-tsdb-kafka-ca, readOnly: true}
{{- if include "readsHistory" . }}
- {name: cassandra, mountPath: /etc/kafka-tsdb-cassandra, readOnly: true}
{{- end }}
{{- end }}

{{- define "secureMounts" -}}
{{ include "tlsMount" . }}
- {name: tokens, mountPath: /etc/kafka-tsdb-tokens, readOnly: true}
{{ include "userMounts" . }}
{{- end }}

{{- define "userVolumes" -}}
{{- $secrets := include "secretsOf" . | fromJson -}}
- {name: kafka, secret: {secretName: {{ $secrets.kafka }}}}
- {name: kafka-ca, secret: {secretName: kafka-ca}}
{{- if include "readsHistory" . }}
- {name: cassandra, secret: {secretName: {{ include "cassandraUser" . }}}}
{{- end }}
{{- end }}

{{- define "secureVolumes" -}}
{{- $secrets := include "secretsOf" . | fromJson -}}
- {name: tls, secret: {secretName: {{ . }}-tls}}
- {name: tokens, secret: {secretName: {{ $secrets.tokens }}}}
{{ include "userVolumes" . }}
{{- end }}

{{- /* Arguments of Spark's driver, which starts the executors with the same users. */ -}}
{{- define "executorSecrets" -}}
{{- $kafka := list "SECURITY_PROTOCOL=SSL" "SSL_CA_FILE=/etc/kafka-tsdb-kafka-ca/ca.crt" "SSL_CERTIFICATE_FILE=/etc/kafka-tsdb-kafka/user.crt" "SSL_KEY_FILE=/etc/kafka-tsdb-kafka/user.key" -}}
{{- range $kafka }}
- --conf=spark.executorEnv.TSDB_KAFKA_{{ . }}
{{- end }}
- --conf=spark.executorEnv.TSDB_CASSANDRA_PASSWORD_FILE=/etc/kafka-tsdb-cassandra/password
- --conf=spark.executorEnv.TSDB_CASSANDRA_SSL_CA_FILE=/etc/kafka-tsdb-cassandra/ca.crt
- --conf=spark.kubernetes.executor.secretKeyRef.TSDB_CASSANDRA_USERNAME=cassandra-spark:username
- --conf=spark.kubernetes.executor.secrets.kafka-chunk-stage=/etc/kafka-tsdb-kafka
- --conf=spark.kubernetes.executor.secrets.kafka-ca=/etc/kafka-tsdb-kafka-ca
- --conf=spark.kubernetes.executor.secrets.cassandra-spark=/etc/kafka-tsdb-cassandra
{{- end }}
