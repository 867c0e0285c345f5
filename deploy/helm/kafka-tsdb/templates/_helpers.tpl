{{- define "image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "sparkImage" -}}
{{ .Values.sparkImage.repository }}:{{ .Values.sparkImage.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Spark's namespace, and the authority of all servers. Their defaults follow the namespace of the release, so that two
   releases in two namespaces have no object in common. */ -}}
{{- define "sparkNamespace" -}}
{{ .Values.spark.namespace | default (printf "%s-spark" .Release.Namespace) }}
{{- end }}

{{- define "issuerName" -}}
{{ .Values.security.issuer.name | default .Release.Namespace }}
{{- end }}

{{- /* The port of brokers that clients and network policies use. */ -}}
{{- define "kafkaPort" -}}
{{ .Values.security.enabled | ternary .Values.security.kafka.port 9092 }}
{{- end }}

{{- define "log" -}}
{{ .Values.config.log | default (printf "kafka://kafka-bootstrap.%s:%v" .Values.security.kafka.namespace (include "kafkaPort" .)) }}
{{- end }}

{{- /* The history, with the port of the network policy where the value has none. */ -}}
{{- define "history" -}}
{{- $url := .Values.config.history | default "" -}}
{{- if and .Values.security.enabled (ne (int .Values.security.cassandra.port) 9042) -}}
{{- regexReplaceAll "^(cassandra://[^/:]+)/" $url (printf "${1}:%v/" .Values.security.cassandra.port) -}}
{{- else -}}
{{- $url -}}
{{- end -}}
{{- end }}

{{- /* The text of tsdb.toml. A JSON string is one of TOML too. */ -}}
{{- define "settings" -}}
# One file for all roles: a role ignores the keys of others. Secrets are mounted, never written here.
{{- $own := dict "log" (include "log" .) }}
{{- if .Values.config.history }}{{ $own = merge $own (dict "history" (include "history" .)) }}{{ end }}
{{- range $name, $value := merge $own .Values.config }}
{{ $name }} = {{ if kindIs "float64" $value }}{{ int64 $value }}{{ else }}{{ toJson $value }}{{ end }}
{{- end }}
{{ end }}

{{- /* A name with the hash that kustomize puts behind it. Takes a mapping of name and data. */ -}}
{{- define "hashedName" -}}
{{- $digest := dict "kind" "ConfigMap" "name" "" "data" .data | toJson | sha256sum | trunc 10 -}}
{{ .name }}-{{ $digest | replace "0" "g" | replace "1" "h" | replace "3" "k" | replace "a" "m" | replace "e" "t" }}
{{- end }}

{{- define "configName" -}}
{{ include "hashedName" (dict "name" "kafka-tsdb" "data" (dict "tsdb.toml" (include "settings" .))) }}
{{- end }}

{{- define "podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Spark writes into the folders of its image. */ -}}
{{- define "sparkSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Where a pod runs, and what images need. Takes root, values of the role, and affinity: what the chart needs. Values of a
   role are added to those of all pods; its affinity and its class replace them. */ -}}
{{- define "placement" -}}
{{- $all := .root.Values -}}
{{- $own := .values | default dict -}}
{{- with merge (deepCopy ($own.nodeSelector | default dict)) ($all.nodeSelector | default dict) }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat ($all.tolerations | default list) ($own.tolerations | default list) }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $affinity := deepCopy ($own.affinity | default $all.affinity | default dict) }}
{{- with .affinity }}
{{- $pods := get $affinity "podAntiAffinity" | default dict }}
{{- $name := "requiredDuringSchedulingIgnoredDuringExecution" }}
{{- $pods = merge (dict $name (concat . (get $pods $name | default list))) $pods }}
{{- $affinity = merge (dict "podAntiAffinity" $pods) $affinity }}
{{- end }}
{{- with $affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.priorityClassName | default $all.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $all.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ kindIs "string" . | ternary . (get (kindIs "map" . | ternary . dict) "name") }}}
  {{- end }}
{{- end }}
{{- end }}

{{- /* Annotations of pods. Takes root and values of the role. */ -}}
{{- define "podAnnotations" -}}
{{- with merge (deepCopy ((.values | default dict).annotations | default dict)) (.root.Values.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Entries of a list of the values, those of all pods first. Takes root, values of the role, and name. */ -}}
{{- define "extra" -}}
{{- with concat (get .root.Values .name | default list) (get (.values | default dict) .name | default list) }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- /* What the pods of all Python roles have in common. Takes root and role. */ -}}
{{- define "pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "podSecurity" .root | nindent 2 }}
terminationGracePeriodSeconds: {{ add .root.Values.preStopSeconds 45 }}
volumes:
  - name: config
    configMap: {name: {{ include "configName" .root }}}
  - {name: tmp, emptyDir: {}}
  {{- if .root.Values.security.enabled }}
  {{- include "secureVolumes" .role | nindent 2 }}
  {{- end }}
  {{- with include "extra" (merge (dict "name" "extraVolumes") .) }}
  {{- . | nindent 2 }}
  {{- end }}
{{- with include "placement" . | trim }}
{{ . }}
{{- end }}
{{- end }}

{{- /* And their container, without name, arguments and resources. Takes root and role. */ -}}
{{- define "container" -}}
image: {{ include "image" .root }}
securityContext:
  {{- include "containerSecurity" .root | nindent 2 }}
ports:
  - {name: grpc, containerPort: 7410}
  - {name: http, containerPort: 7411}
lifecycle:
  preStop:
    sleep: {seconds: {{ .root.Values.preStopSeconds }}}
{{ include "probes" .root }}
volumeMounts:
  - {name: config, mountPath: /etc/kafka-tsdb, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  {{- if .root.Values.security.enabled }}
  {{- include "secureMounts" .role | nindent 2 }}
  {{- end }}
  {{- with include "extra" (merge (dict "name" "extraVolumeMounts") .) }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "probes" -}}
{{- $scheme := .Values.security.enabled | ternary ", scheme: HTTPS" "" -}}
startupProbe:
  httpGet: {path: /-/healthy, port: http{{ $scheme }}}
  periodSeconds: 5
  failureThreshold: 120
livenessProbe:
  httpGet: {path: /-/healthy, port: http{{ $scheme }}}
  periodSeconds: 10
  failureThreshold: 3
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /-/ready, port: http{{ $scheme }}}
  periodSeconds: 5
  failureThreshold: 2
  timeoutSeconds: 5
{{- end }}

{{- /* An upgrade goes from readers to writers. Takes the root and the names of the readers. */ -}}
{{- define "awaitReaders" -}}
initContainers:
  - name: readers
    image: {{ include "image" .root }}
    args:
      - await-release
      {{- toYaml .readers | nindent 6 }}
      {{- if .root.Values.security.enabled }}
      - --tls-ca=/etc/kafka-tsdb-tls/ca.crt
      {{- end }}
    resources:
      requests: {cpu: 100m, memory: 128Mi}
      limits: {memory: 128Mi}
    {{- if .root.Values.security.enabled }}
    volumeMounts:
      {{- include "tlsMount" . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "containerSecurity" .root | nindent 6 }}
{{- end }}

{{- define "spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {app: kafka-tsdb, role: {{ . }}}}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {app: kafka-tsdb, role: {{ . }}}}
{{- end }}

{{- /* A Deployment of one role. Takes root, role, values, rolling (surge, unavailable) and readers to wait for. */ -}}
{{- define "deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .role }}
  namespace: {{ .root.Release.Namespace }}
spec:
  {{- with .values.replicas }}
  replicas: {{ . }}
  {{- end }}
  strategy:
    rollingUpdate: {{ toJson .rolling }}
  selector:
    matchLabels: {app: kafka-tsdb, role: {{ .role }}}
  template:
    metadata:
      labels: {app: kafka-tsdb, role: {{ .role }}}
      {{- with include "podAnnotations" . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
    spec:
      {{- include "pod" . | nindent 6 }}
      {{- include "spread" .role | nindent 6 }}
      {{- with .readers }}
      {{- include "awaitReaders" (dict "root" $.root "readers" .) | nindent 6 }}
      {{- end }}
      containers:
        - name: {{ .role }}
          args: [{{ .role }}]
          env:
            - {name: TSDB_CONFIG, value: /etc/kafka-tsdb/tsdb.toml}
            {{- if .root.Values.security.enabled }}
            {{- include "secureEnv" .role | nindent 12 }}
            {{- end }}
            {{- if and (eq .role "querier") .root.Values.ruler.enabled }}
            - {name: TSDB_RULERS, value: "ruler:7411"}
            {{- end }}
            {{- with include "extra" (merge (dict "name" "extraEnv") .) }}
            {{- . | nindent 12 }}
            {{- end }}
          resources: {{ toJson .values.resources }}
          {{- include "container" . | nindent 10 }}
{{- end }}

{{- /* The Service of a role. peers: the addresses of all pods, ready or not. */ -}}
{{- define "service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name | default .role }}
  namespace: {{ .root.Release.Namespace }}
  labels: {app: kafka-tsdb, role: {{ .role }}}
spec:
  {{- if .peers }}
  clusterIP: None
  publishNotReadyAddresses: true
  {{- end }}
  selector: {app: kafka-tsdb, role: {{ .role }}}
  ports:
    - {name: grpc, port: 7410, targetPort: grpc}
    - {name: http, port: 7411, targetPort: http}
{{- end }}

{{- define "budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .role }}
  namespace: {{ .root.Release.Namespace }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {app: kafka-tsdb, role: {{ .role }}}
{{- end }}

{{- define "autoscaler" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .role }}
  namespace: {{ .root.Release.Namespace }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .role }}}
  minReplicas: {{ .values.minReplicas }}
  maxReplicas: {{ .values.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ .values.targetCpuPercent }}}
  behavior:
    scaleDown:
      stabilizationWindowSeconds: 600
      policies:
        - {type: Pods, value: 1, periodSeconds: 120}
{{- end }}
