"""Settings that are refused: as flags, as variables, in a TOML file. The current folder holds the files of TOML."""

from __future__ import annotations

from support.bad_inputs.rows import Command

TOML = {
    "soon.toml": b'drain_s = "soon"\n',
    "low.toml": b"drain_s = -1\n",
    "unknown.toml": b"nonsense = 1\n",
    "near.toml": b'log_levle = "info"\n',
    "secret.toml": b'token = "s3cret"\n',
    "section.toml": b'[gateway]\nlog = "kafka://h:1"\n',
    "chain.toml": b'config = "other.toml"\n',
    "twice.toml": b"drain_s = 1\ndrain_s = 2\n",
    "number.toml": b"grpc = 7410\n",
    "switch.toml": b"drain_s = true\n",
    "words.toml": b"these are words\n",
    "nan.toml": b"drain_s = nan\n",
    "fraction.toml": b"labels_max = 1.5\n",
    "list.toml": b"placement_labels = [1]\n",
    "date.toml": b"drain_s = 1979-05-27\n",
    "latin1.toml": b"log = '\xff'\n",
}


def _flags(options: str, words: str, role: str = "gateway", **env: str) -> Command:
    return Command(f"config show {role} --log kafka://h:1 {options}", words, env=env)


FLAGS = (
    _flags("--drain-s -1", "drain_s = '-1': it must be greater than or equal to 0"),
    _flags("--drain-s soon", "drain_s = 'soon': it must be a valid number"),
    _flags("--drain-s 1e9", "it must be less than or equal to 3600"),
    _flags("--drain-s nan", "drain_s = 'nan'"),
    _flags("--log-level loud", "it must be 'debug', 'info', 'warning' or 'error'"),
    _flags("--log-format xml", "it must be 'console' or 'json'"),
    _flags("--grpc nowhere", "grpc = 'nowhere': 'nowhere' is not HOST:PORT with a port of 0 to 65535"),
    _flags("--grpc host:99999", "'host:99999' is not HOST:PORT"),
    _flags("--grpc 'a b:1'", "'a b:1' is not HOST:PORT"),
    _flags("--http ''", "'' is not HOST:PORT"),
    _flags("--log-prefix 'a b'", "log_prefix = 'a b': string should match pattern"),
    _flags("--log-prefix " + "a" * 101, "string should have at most 100 characters"),
    _flags("--time-set fast", "it must be 'production', 'demo' or 'brief'"),
    _flags("--tls-cert-file c", "tls_cert_file and tls_key_file go together"),
    _flags("--tls-client-ca-file c", "tls_client_ca_file needs tls_cert_file and tls_key_file"),
    _flags("--kafka-security-protocol TLS", "it must be 'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT' or 'SASL_SSL'"),
    _flags("--kafka-security-protocol SASL_SSL", "SASL_SSL and kafka_sasl_mechanism do not fit together"),
    _flags("--kafka-sasl-mechanism PLAIN", "PLAINTEXT and kafka_sasl_mechanism do not fit together"),
    _flags(
        "--kafka-security-protocol SASL_SSL --kafka-sasl-mechanism PLAIN",
        "kafka_sasl_mechanism and kafka_sasl_username go together",
    ),
    _flags("--kafka-ssl-ca-file c", "kafka_ssl_* settings need SSL or SASL_SSL"),
    _flags("--kafka-ssl-certificate-file c", "kafka_ssl_certificate_file and kafka_ssl_key_file go together"),
    _flags("--grpc-running-max 0", "it must be greater than or equal to 1"),
    _flags("--grpc-running-max 10001", "it must be less than or equal to 10000"),
    _flags("--grpc-running-max many", "it must be a valid integer"),
    _flags("--request-bytes-max 0", "it must be greater than or equal to 1024"),
    _flags("--idempotence maybe", "got unexpected extra argument(s) (maybe)"),
    _flags("--produce-timeout-s 0", "it must be greater than 0"),
    _flags("--token x", "no such option: --token (Possible options: --token-file)"),
    _flags("--kafka-sasl-password x", "no such option: --kafka-sasl-password"),
    _flags("--partitions x", "'x' is not a list of partitions such as 0-8 or 0-3,7", "store"),
    _flags("--partitions 5-3", "'5-3' is not a list of partitions", "store"),
    _flags("--partitions 0-999999", "(below 100000)", "store"),
    _flags("--shard 7/3", "'7/3' is not INDEX/COUNT with an index from 0 to below the count", "store"),
    _flags("--shard 0/3 --partitions 1", "partitions and shard: give one of them", "store"),
    _flags("--memory-hard-bytes 10", "memory_hard_bytes = '10': it must be greater than or equal to", "store"),
    _flags("--workers -1", "it must be greater than or equal to 0", "store"),
    _flags("--lag-enter-s 30 --lag-leave-s 20", "lag_leave_s 20 must be above lag_enter_s 30", "store"),
    _flags("", "stores is required: give --stores or TSDB_STORES", "querier"),
    _flags("--stores ''", "at least one HOST:PORT is wanted", "querier"),
    _flags("--stores a:0", "'a:0' has no port to connect to", "querier"),
    _flags("--history ftp://x", "is none of cassandra://HOST[,HOST]/KEYSPACE", "loader"),
    _flags("--history parquet://x", "is none of cassandra://HOST[,HOST]/KEYSPACE", "querier --stores h:1"),
    _flags("--tables mysql://x", "'mysql://x' is neither sqlite:///PATH nor pyiceberg://NAME", "loader"),
    _flags("--tables sqlite:///t --tables-name samples", "tables_name = 'samples'", "loader"),
    Command("config show standalone --history '' --tables sqlite:///t", "tables needs a history"),
    Command("config show gateway", "log is required: give --log or TSDB_LOG"),
    Command("config show gateway --log kafka://", "'' is not HOST:PORT"),
    Command("config show gateway --log kafka://h", "'h' is not HOST:PORT"),
    Command("config show gateway --log kafka://h:1,,g:2", "'' is not HOST:PORT"),
    Command("config show gateway --log sqlite:///", "'sqlite:///' is neither kafka://"),
    Command("config show gateway --log /var/log.db", "'/var/log.db' is neither kafka://"),
    # The roles themselves refuse as `config show` does: before anything is opened.
    Command("gateway --log kafka://h:1 --drain-s -1", "(see: tsdb gateway --help)"),
    Command("store --log kafka://h:1 --shard 7/3", "(see: tsdb store --help)"),
    Command("standalone --grpc nowhere", "(see: tsdb standalone --help)"),
    Command("standalone --http 0.0.0.0:0", "0.0.0.0:0 would listen beyond this machine without a token", code=1),
    Command(
        "gateway --log kafka://h:1 --http '[::]:0'", "[::]:0 would listen beyond this machine without a token", code=1
    ),
)

VARIABLES = (
    _flags("", "drain_s = 'soon' from TSDB_DRAIN_S: it must be a valid number", TSDB_DRAIN_S="soon"),
    _flags("", "variable TSDB_NONSENSE is not a setting", TSDB_NONSENSE="1"),
    _flags("", "variable TSDB_LOG_LEVLE is not a setting; did you mean log_level?", TSDB_LOG_LEVLE="info"),
    _flags("", "config file none.toml cannot be read", TSDB_CONFIG="none.toml"),
    _flags("", "grpc = 'nowhere' from TSDB_GRPC", TSDB_GRPC="nowhere"),
    _flags("", "time_set = 'fast' from TSDB_TIME_SET", TSDB_TIME_SET="fast"),
    _flags("", "idempotence = 'maybe' from TSDB_IDEMPOTENCE: it must be a valid boolean", TSDB_IDEMPOTENCE="maybe"),
    _flags("", "partitions = 'x' from TSDB_PARTITIONS", "store", TSDB_PARTITIONS="x"),
    _flags(
        "", "kafka_sasl_password and kafka_sasl_password_file: give one of them",
        TSDB_KAFKA_SASL_PASSWORD="s3cret", TSDB_KAFKA_SASL_PASSWORD_FILE="f",
    ),
    Command("config show gateway", "log = 'ftp://x' from TSDB_LOG", env={"TSDB_LOG": "ftp://x"}),
)  # fmt: skip

CONFIG_FILES = (
    _flags("--config none.toml", "config file none.toml cannot be read: [Errno 2] No such file"),
    _flags("--config folder", "config file folder cannot be read: [Errno 21] Is a directory"),
    _flags("--config latin1.toml", "config file latin1.toml cannot be read: 'utf-8' codec"),
    _flags("--config words.toml", "config file words.toml cannot be read: Expected '=' after a key"),
    _flags("--config twice.toml", "Cannot overwrite a value (at line 2, column 12)"),
    _flags("--config soon.toml", "drain_s = 'soon' in soon.toml: it must be a valid number"),
    _flags("--config low.toml", "drain_s = '-1' in low.toml: it must be greater than or equal to 0"),
    _flags("--config nan.toml", "drain_s = 'nan' in nan.toml"),
    _flags("--config date.toml", "drain_s = '1979-05-27' in date.toml"),
    _flags("--config switch.toml", "drain_s = true in switch.toml: it is no switch"),
    _flags("--config number.toml", "grpc = '7410' in number.toml: it must be a valid string"),
    _flags("--config fraction.toml", "labels_max = '1.5' in fraction.toml: it must be a valid integer"),
    _flags("--config list.toml", "placement_labels = '1' in list.toml: it must be a valid string"),
    _flags("--config unknown.toml", "key nonsense in unknown.toml is not a setting"),
    _flags("--config near.toml", "key log_levle in near.toml is not a setting; did you mean log_level?"),
    _flags("--config section.toml", "[gateway] in section.toml is a section, and settings have none"),
    _flags("--config chain.toml", "key config in chain.toml is not a setting"),
    _flags("--config secret.toml", "token must not be given in secret.toml"),
)

_SHOWS = "a user or password in a URL shows in process lists and logs"
_OF_LOG = f"log = 'kafka://u:***@h:9092': {_SHOWS}"
_OF_HISTORY = f"history = 'cassandra://u:***@h/k': {_SHOWS}"
_OF_LOG_VARIABLE = f"log = 'kafka://u:***@h:9092' from TSDB_LOG: {_SHOWS}"
_OF_HISTORY_VARIABLE = f"history = 'cassandra://u:***@h/k' from TSDB_HISTORY: {_SHOWS}"
_LOG = "kafka://u:s3cret@h:9092"
_HISTORY = "cassandra://u:s3cret@h/k"

# A process ends at once, so its command line with the password is soon out of the process list.
PASSWORDS = (
    Command(f"gateway --log {_LOG}", _OF_LOG),
    Command(f"store --log {_LOG}", _OF_LOG),
    Command("store", _OF_LOG_VARIABLE, env={"TSDB_LOG": _LOG}),
    Command(f"querier --stores h:1 --log {_LOG}", _OF_LOG),
    Command(f"querier --stores h:1 --log kafka://h:1 --history {_HISTORY}", _OF_HISTORY),
    Command(f"chunker --log {_LOG}", _OF_LOG),
    Command(f"loader --log kafka://h:1 --history {_HISTORY}", _OF_HISTORY),
    Command("loader --log kafka://h:1", _OF_HISTORY_VARIABLE, env={"TSDB_HISTORY": _HISTORY}),
    Command(f"topics create --partitions 1 --log {_LOG}", _OF_LOG),
    Command("topics check", _OF_LOG_VARIABLE, env={"TSDB_LOG": _LOG}),
    Command(f"log dump --partition 0 --log {_LOG}", _OF_LOG),
    Command(f"log offsets --log {_LOG}", _OF_LOG),
    Command(f"chunks status --log {_LOG}", _OF_LOG),
    Command(f"dlq ls --log {_LOG}", _OF_LOG),
    Command(f"history create --log sqlite:///log.db --history {_HISTORY}", _OF_HISTORY),
    Command(f"history check --log {_LOG} --history sqlite:///h.db", _OF_LOG),
    Command("history windows", _OF_HISTORY_VARIABLE, env={"TSDB_HISTORY": _HISTORY}),
    Command(f"holes ls --history {_HISTORY}", _OF_HISTORY),
    Command(f"spark rebuild --from 1 --to 2 --log {_LOG} --history sqlite:///h.db", _OF_LOG),
    Command(f"config show store --log {_LOG}", _OF_LOG),
)

SETTINGS = (*FLAGS, *VARIABLES, *CONFIG_FILES, *PASSWORDS)
PROCESSES = (PASSWORDS[1], PASSWORDS[2], PASSWORDS[6], PASSWORDS[9])  # Run again as separate processes.
SECRET = "s3cret"  # A secret of the rows above; no message may show it.
