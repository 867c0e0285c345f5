"""Commands that are refused. The current folder holds the files of FILES."""

from __future__ import annotations

from support.bad_inputs.rows import Command

FILES = {
    "not.pem": b"not PEM",
    "latin1": b"\xff\xfe",
    "bad-token": b'"quoted"',
    "garbage.db": b"garbage" * 1000,
    "samples.jsonl": b'{"labels":{"__name__":"up"},"ts_ms":1,"value":1}\n',
    "samples": b"up 1\n",
    "rooms.csv": b"ts,room,v\n2026-01-01,a,1\n",
}
FOLDER = "folder"

MANY = "up{" + ",".join(f'a{n}="b"' for n in range(1_000)) + "}"


def _selector(text: str, words: str) -> Command:
    return Command(f"query --raw '{text}' --address @store", words)


def _query(options: str, words: str, code: int = 2) -> Command:
    return Command(f"query --raw up --address @store {options}", words, code)


def _promql(options: str, words: str) -> Command:
    return Command(f"query up --address @store {options}", words)


WORDS = (
    Command("nonsense", "no such command 'nonsense'"),
    Command("qurey up", "Did you mean 'query'"),
    Command("--nonsense", "no such option: --nonsense"),
    Command("topics creat", "Did you mean 'create'?"),
    Command("config show nobody", "no such command 'nobody' (see: tsdb config show --help)"),
    Command("gateway up", "got unexpected extra argument(s) (up)"),
    Command("store --log sqlite:///log.db --nonsense", "no such option: --nonsense (see: tsdb store --help)"),
    Command("query --address @store", "missing argument 'EXPR'"),
    Command("query up --timeout 300ms", "nothing listens at 127.0.0.1:1", 1, {"TSDB_ADDRESS": "127.0.0.1:1"}),
    Command("query up --address", "'--address' requires an argument"),
    Command("query up down --address @store", "unexpected extra argument(s) (down)"),
)

ADDRESSES = (
    Command("query up --address nowhere", "address 'nowhere' is not HOST:PORT"),
    Command("query up --address 127.0.0.1", "address '127.0.0.1' is not HOST:PORT"),
    Command("query up --address 127.0.0.1:0", "address '127.0.0.1:0' is not HOST:PORT"),
    Command("query up --address 127.0.0.1:99999", "address '127.0.0.1:99999' is not HOST:PORT"),
    Command("query up --address http://127.0.0.1:80", "address 'http://127.0.0.1:80' is not HOST:PORT"),
    Command("query up --address [::1:80", "address '[::1:80' is not HOST:PORT"),
    Command("query up --address ''", "address '' is not HOST:PORT"),
    Command("query up --address 127.0.0.1:1 --timeout 300ms", "nothing listens at 127.0.0.1:1: start the server", 1),
    Command("query up --address nowhere.invalid:1 --timeout 300ms", "the host of nowhere.invalid:1 is not known", 1),
    Command("query up --address @store-http", "is not a gRPC port, it speaks HTTP/1: give the server's --grpc", 1),
    Command("query up --raw --address @gateway", "answers no reads (Select), it is a gateway: call a store", 1),
    Command("status --address @gateway", "answers no reads (Coverage), it is a gateway: call a store", 1),
    Command("series up --address @gateway", "answers no reads (Series), it is a gateway", 1),
    Command("labels --address @gateway", "answers no reads (LabelNames), it is a gateway", 1),
    Command("watch up --address @gateway", "it is a gateway: call a store or a querier (`tsdb store`", 1),
    Command(
        "write samples.jsonl --address @store", "takes no writes, it is a store or a querier: write to a gateway", 1
    ),
    Command("write samples.jsonl --address @gateway-http", "it speaks HTTP/1: give the server's --grpc address", 1),
    Command("status --address @store --http nowhere", "address 'nowhere' is not HOST:PORT"),
    Command("status --address @store --http 127.0.0.1:1", "http://127.0.0.1:1/-/ready does not answer", 1),
    Command("status --address @store --http @store", "does not speak HTTP: give the server's --http address", 1),
    Command("query up --address @gateway", "answers no queries, it is a gateway: call a querier", 1),
    Command("query up --address @store", "a store does not evaluate PromQL: ask a querier", 1),
)

PAGES = (
    Command("open --page nowhere", "'nowhere' is neither HOST:PORT nor a URL of http or https"),
    Command("open --page ftp://h:1", "'ftp://h:1' is neither HOST:PORT nor a URL"),
    Command("open up --page 127.0.0.1:1", "nothing listens at http://127.0.0.1:1: start `tsdb standalone`", 1),
    Command("open up", "nothing listens at http://127.0.0.1:2", 1, {"TSDB_PAGE": "127.0.0.1:2"}),
    Command("open up --page @store", "does not speak HTTP: give the server's --http address", 1),
    Command("open up --page @store-http", "has no page: give the --http address of a querier or of standalone", 1),
    Command("open up --last 5m --end 1", "give --last, or --start and --end"),
    Command("open up --start 5 --end 4", "--start 5 is not before --end 4"),
    Command(f"open {' up' * 13}", "13 expressions; a page has at most 12 panels"),
)

CREDENTIALS = (
    _query("--tls", "does not speak TLS: leave out --tls and --tls-ca", 1),
    _query("--tls-ca none.pem", "TLS file none.pem is not there", 1),
    _query("--tls-ca folder", "TLS file folder is not there, or is no file", 1),
    _query("--tls-ca not.pem", "CA not.pem, certificate none, key none", 1),
    _query("--tls-cert not.pem", "a client certificate and its key go together", 1),
    _query("--tls-cert not.pem --tls-key not.pem", "certificate not.pem, key not.pem", 1),
    _query("--token-file none", "token file none cannot be read: No such file or directory", 1),
    _query("--token-file folder", "token file folder cannot be read: Is a directory", 1),
    _query("--token-file latin1", "token file latin1 cannot be read: not UTF-8", 1),
    _query("--token-file bad-token", "characters of the token are outside A-Z a-z 0-9", 1),
    Command("query up --address @store", "characters of the token are outside", 1, {"TSDB_TOKEN": '"x"'}),
    Command("query up", "address 'here' is not HOST:PORT", env={"TSDB_ADDRESS": "here"}),
)

SELECTORS = (
    _selector("", 'expected a metric name or "{"'),
    _selector("{}", "must contain at least one non-empty matcher"),
    _selector("up{", "1:4: parse error: unexpected end of input inside braces"),
    _selector("up{a}", '1:5: parse error: unexpected "}" in label matching, expected label matching operator'),
    _selector("up{a=}", '1:6: parse error: unexpected "}" in label matching, expected string'),
    _selector("up{a=b}", '1:6: parse error: unexpected identifier "b" in label matching, expected string'),
    _selector('up{a="b"', "1:9: parse error: unexpected end of input inside braces"),
    _selector('up{a="b" c="d"}', "1:10: parse error: unexpected identifier"),
    _selector('up{"a"}', "1:4: parse error: metric name must not be set twice"),
    _selector('up{=~"x"}', "expected label name"),
    _selector('up{a=="b"}', "expected label matching operator"),
    _selector('up{a="b}', "1:6: parse error: unterminated quoted string"),
    _selector(r'up{a="\q"}', r"unknown escape sequence \q"),
    _selector(r'up{a="\ud800"}', "escape sequence is an invalid Unicode code point"),
    _selector(r'up{a="\U00110000"}', "escape sequence is an invalid Unicode code point"),
    _selector("up}", '1:3: parse error: unexpected "}"'),
    _selector('up{a="b"}}', "1:10: parse error"),
    _selector("1up", '1:1: parse error: bad number or duration syntax: "1up"'),
    _selector("up up", '1:4: parse error: unexpected identifier "up"'),
    _selector(MANY, "selector has more than 1000 matchers"),
    _selector("rate(up[5m])", "`tsdb query` without --raw evaluates PromQL"),
    _selector("sum by (job) (up)", "give a selector such as up{job="),
    _selector("up[5m]", "'up[5m]' is more than a selector"),
    _selector("up offset 5m", "'up offset 5m' is more than a selector"),
    _selector("up @ 0", "'up @ 0' is more than a selector"),
    _selector("up / 2", "'up / 2' is more than a selector"),
    _selector("up > 0", "'up > 0' is more than a selector"),
    Command("""query --raw '{a=~"("}' --address @store""", "regular expression '(': missing )"),
    Command("""query --raw '{a=~"*"}' --address @store""", "no argument for repetition operator"),
    Command("""query --raw '{a=~"a{2000}"}' --address @store""", "invalid repetition size"),
    Command("""query --raw '{a=~"(?=a)"}' --address @store""", "invalid perl operator"),
    Command("""query --raw '{a=~"[z-a]"}' --address @store""", "invalid character class range"),
    Command("""query --raw '{a=~".*"}' --address @store""", "must contain at least one non-empty matcher"),
    Command("""query --raw '{a=""}' --address @store""", "must contain at least one non-empty matcher"),
    Command("series 'up{' --address @store", "1:4: parse error"),
    Command("labels job --selector '{' --address @store", "invalid value for '--selector'"),
    Command("labels '' --address @store", "label name is empty", 1),
    Command("cardinality --match up --address @store", "no such option: --match"),
    Command("cardinality --selector 'up{' --address @store", "1:4: parse error"),
    Command("series up --group-by '' --address @store", "--group-by '' has an empty label name"),
    Command("series up --group-by job,,instance --address @store", "has an empty label name"),
    Command("watch --address @store", "missing argument 'SELECTOR'"),
    Command("""watch '{a=~"("}' --address @store""", "missing )"),
)

TIMES = (
    _query("--start tomorrow", "'tomorrow' is neither ms since the epoch nor a time such as"),
    _query("--start 2026-13-01", "'2026-13-01' is neither"),
    _query("--start 2026-02-30T00:00:00Z", "is neither ms since the epoch"),
    _query("--start 12:00", "'12:00' is neither"),
    _query("--start now+1h", "'now+1h' is neither"),
    _query("--start now-soon", "'soon' is not a duration"),
    _query("--start -1q", "'1q' is not a duration such as 30s, 10m, 1.5h, 2d, 1w or 1y"),
    _query("--start yesterday+1h", "'yesterday+1h' is neither"),
    _query("--start 1700000000", "looks like seconds; times are ms since the epoch: write 1700000000000"),
    _query("--start 1700000000.5", "write 1700000000500 or 2023-11-14T22:13:20.500Z"),
    _query("--end 1700000000000000", "looks like microseconds"),
    _query("--end 1700000000000000000", "looks like nanoseconds"),
    _query("--end 99999999999999999999", "is neither ms since the epoch"),
    _query("--start 5 --end 5", "--start 5 is not before --end 5"),
    _query("--start -5 --end -10", "--start -5 is not before --end -10"),
    _query("--start 9999-12-31", "is not before --end"),
    _query("--last soon", "'soon' is not a duration such as 30s, 10m, 1.5h, 2d, 1w or 1y"),
    _query("--last 5q", "'5q' is not a duration"),
    _query("--last '5 m'", "'5 m' is not a duration"),
    _query("--last 1e3", "'1e3' is not a duration"),
    _query("--last -5m", "'-5m' is not a duration"),
    _query("--last 0", "from 1 ms"),
    _query("--last 0.0001s", "from 1 ms"),
    _query("--last 99999999999d", "is not a duration"),
    _query("--last nan", "'nan' is not a duration"),
    _query("--last 5m --end 1", "give --last, or --start and --end"),
    _query("--timeout 0", "'0' is not a duration"),
    _query("--timeout 31d", "'31d' is above 30d"),
    Command("watch up --address @store --duration 0", "'0' is not a duration"),
    Command("log offsets --log sqlite:///log.db --at 1700000000", "looks like seconds"),
    _query("--at now", "--at goes without --raw"),
    _promql("--at tomorrow", "'tomorrow' is neither ms since the epoch nor a time such as"),
    _promql("--at 1700000000", "looks like seconds; times are ms since the epoch: write 1700000000000"),
    _promql("--at now --last 5m", "give --at for one time, or --start, --end, --last and --step for a range"),
    _promql("--at now --step 1m", "give --at for one time"),
    _promql("--start 5 --end 4", "--start 5 is after --end 4"),
    _promql("--start 9999-12-31", "is after --end"),
    _promql("--last 5m --end 1", "give --last, or --start and --end"),
    _promql("--step 0", "'0' is not a duration"),
    _promql("--lookback 0", "'0' is not a duration"),
)

FORMS = (
    _query("--step 1m", "--step and --agg go together"),
    _query("--agg avg", "--step and --agg go together"),
    _query("--step 1m --agg median", "'median' is not one of 'last', 'avg'"),
    _query("--step 0 --agg avg", "'0' is not a duration"),
    _query("--step 1ms --agg avg --last 30d", "limit is 100000: ask for longer steps or a shorter range", 1),
    _query("--downsampled", "--downsampled goes with --step and --agg"),
    _query("--last-n -1", "'--last-n': -1 is not in the range 0<=x<=4294967295"),
    _query("--last-n x", "'--last-n': 'x' is not a whole number"),
    _query("--last-n 3.5", "'--last-n': '3.5' is not a whole number"),
    _query("--last-n 99999999999", "'--last-n': 99999999999 is not in the range 0<=x<=4294967295"),
    _query("--last-n 3 --step 1m --agg avg", "give --last-n or --step, not both"),
    _query("--encoding zip", "'zip' is not one of 'raw', 'columns'"),
    _query("--encoding columns --last-n 3", "--encoding columns goes without --step and --last-n"),
    _query("--output xml", "'xml' is not one of 'table', 'json', 'csv', 'parquet'"),
    _query("--out x.txt", "--out x.txt: a file is json, csv or parquet, by its name or by --output"),
    _query("--output csv --out folder", "--out folder is a folder"),
    _query("--out none/x.csv", "--out none/x.csv is in a folder that is not there"),
    _query("--output csv --out none/x.csv", "--out none/x.csv is in a folder that is not there"),
    _query("--wide", "--wide goes with csv and parquet; the format is table"),
    _query("--wide -o x.json", "--wide goes with csv and parquet; the format is json"),
    _query("--rows -1", "'--rows': -1 is not in the range x>=0"),
    _query("--lookback 5m", "--lookback goes without --raw"),
    _promql("--agg avg --step 1m", "--agg goes with --raw"),
    _promql("--last-n 3", "--last-n goes with --raw"),
    _promql("--downsampled", "--downsampled goes with --raw"),
    _promql("--encoding columns", "--encoding goes with --raw"),
    _promql("--output table --out x.csv", "--out x.csv: a file is json, csv or parquet"),
    Command("query -up --address @store", "no such option: -u"),
    Command("watch up --address @store --limit -1", "'--limit': -1 is not in the range x>=0"),
    Command("watch up --address @store --output table", "'table' is not one of 'jsonl'"),
)

WRITERS = (
    Command("write none.csv --address @gateway", "none.csv does not exist"),
    Command("write folder --address @gateway", "folder is not a file"),
    Command("write samples --address @gateway", "cannot tell the format of samples by its name: give --format"),
    Command("write - --address @gateway", "cannot tell the format of - by its name: give --format"),
    Command("write samples.jsonl --format xml --address @gateway", "'xml' is not one of 'parquet', 'csv'"),
    Command(
        "write samples.jsonl --format parquet --address @gateway", "samples.jsonl: Parquet magic bytes not found", 1
    ),
    Command("write samples.jsonl --speed 2 --address @gateway", "--speed goes with --as-live"),
    Command("write samples.jsonl --as-live --speed 0 --address @gateway", "--speed is 0.0; it must be above 0"),
    Command("write samples.jsonl --as-live --speed nan --address @gateway", "--speed is nan; it must be above 0"),
    Command("write samples.jsonl --as-live --speed fast --address @gateway", "'--speed': 'fast' is not a number"),
    Command("write samples.jsonl --as-live --shift-to-now --address @gateway", "give --as-live or --shift-to-now"),
    Command("write samples.jsonl --time ts --address @gateway", "go with csv and parquet; the format is jsonl"),
    Command("write rooms.csv --value v --metric v --address @gateway", "give --value or --metric"),
    Command("write rooms.csv --label host --address @gateway", "--label 'host' is not NAME=VALUE"),
    Command("write rooms.csv --label a=v --constant a=1 --address @gateway", "a label is given twice: a, a", 1),
    Command("write rooms.csv --metric v --name x --address @gateway", "metric columns name the metric", 1),
    Command("write rooms.csv --time-unit h --address @gateway", "'h' is not one of 'ms', 's', 'us', 'ns', 'iso'"),
    Command("write rooms.csv --time at --address @gateway", "rooms.csv: no column at; it has 'ts, room, v'", 1),
    Command("write samples.jsonl --address 127.0.0.1:1 --timeout 300ms", "nothing listens at 127.0.0.1:1", 1),
    Command("import", "missing argument 'PATH...'"),
    Command(
        "import nowhere --log sqlite:///log.db", "nowhere is no block of Prometheus and has none in it (no_input)", 1
    ),
    Command("import folder --log sqlite:///log.db", "folder is no block of Prometheus and has none in it", 1),
    Command("import folder rooms.csv --log sqlite:///log.db", "give blocks or files, not both: rooms.csv is a file"),
    Command("import rooms.csv --log sqlite:///nowhere.db", "nowhere.db", 1),
    Command("import rooms.csv --log sqlite:///log.db --time at", "rooms.csv: no column at; it has 'ts, room, v'", 1),
    Command("import rooms.csv", "tsdb-data/log.sqlite does not exist", 1),
    Command("agent --address @gateway --interval 0", "'0' is not a duration"),
    Command("agent --address @gateway --scrape nonsense", "'nonsense' is not [JOB=]URL with an http or https URL"),
    Command("agent --address @gateway --scrape ftp://h/metrics", "is not [JOB=]URL with an http or https URL"),
    Command("agent --address @gateway --no-host", "nothing to measure: --no-host without --scrape"),
)

TOOLS = (
    Command("topics create --partitions 1", "log is required: give --log or TSDB_LOG"),
    Command("topics create --log sqlite:///n.db", "missing option '--partitions'"),
    Command("topics create --log sqlite:///n.db --partitions 0", "0 is not in the range 1<=x<=10000"),
    Command("topics create --log sqlite:///n.db --partitions 200000", "200000 is not in the range 1<=x<=10000"),
    Command("topics create --log sqlite:///n.db --partitions 1 --retention ever", "'ever' is not a duration"),
    Command("topics create --log sqlite:///n.db --partitions 1 --replication 0", "0 is not in the range x>=1"),
    Command("topics create --log sqlite:///n.db --partitions 1 --grpc h:1", "no such option: --grpc"),
    Command("topics create --log sqlite:///garbage.db --partitions 1", "file is not a database", 1),
    Command("topics create --log sqlite:///log.db --partitions 5", "topic metrics: partitions is 2, must be 5", 1),
    Command(
        "topics create --log sqlite:///log.db --partitions 2 --time-set demo", "this process has demo, meta has", 1
    ),
    Command("topics create --log sqlite:///log.db --partitions 2 --placement-labels host", "placement_labels: this", 1),
    Command("topics check --log sqlite:///garbage.db", "file is not a database", 1),
    Command("rules eval none.yaml --address @store", "none.yaml: No such file or directory", 1),
    Command(
        "rules status --page 127.0.0.1:1", "nothing listens at http://127.0.0.1:1: start `tsdb standalone --rules", 1
    ),
    Command("rules status --page @store", "is not an answer of Prometheus's HTTP API", 1),
    Command("chunker --log sqlite:///log.db --history sqlite:///h.db", "no such option: --history"),
    Command("loader --log sqlite:///log.db --grpc h:1", "no such option: --grpc"),
    Command("kafka plan --drain 1", "log is required: give --log or TSDB_LOG"),
    Command("kafka plan --log sqlite:///log.db --drain 1", "log URL 'sqlite:///log.db' names no brokers", 1),
    Command("kafka plan --log kafka://127.0.0.1:1", "give a target: --drain, --drain-rack, --add or --spread"),
    Command("kafka plan --log kafka://127.0.0.1:1 --drain one", "not a whole number"),
    Command("kafka plan --log kafka://127.0.0.1:1 --spread evenly", "'evenly' is not one of 'leaders', 'replicas'"),
    Command("kafka plan --log kafka://127.0.0.1:1 --add 1 --throttle-mib-s 0", "0.0 is not in the range x>=0.001"),
    Command("kafka plan --log kafka://127.0.0.1:1 --add 1 --topic a --all-topics", "give --topic or --all-topics"),
    Command("kafka apply --log kafka://127.0.0.1:1 nowhere.json", "'nowhere.json' does not exist"),
    Command("kafka apply --log kafka://127.0.0.1:1 samples.jsonl", "samples.jsonl is not a plan", 1),
    Command("kafka apply --log kafka://127.0.0.1:1 latin1", "latin1 is not a plan", 1),
    Command("kafka check --log sqlite:///log.db", "names no brokers", 1),
    Command("kafka check --log sqlite:///log.db --outage ever", "'ever' is not a duration"),
    Command("log dump --log sqlite:///log.db", "missing option '--partition'"),
    Command("log dump --log sqlite:///log.db --partition 9", "metrics has partitions 0 to 1"),
    Command("log dump --log sqlite:///log.db --partition -1", "-1 is not in the range x>=0"),
    Command("log dump --log sqlite:///nowhere.db --partition 0", "nowhere.db", 1),
    Command("log offsets --log ftp://x", "'ftp://x' is neither kafka://HOST:PORT[,HOST:PORT] nor sqlite:///PATH"),
    Command("chunks status --log sqlite:///nowhere.db", "nowhere.db", 1),
    Command("dlq ls --log sqlite:///log.db --topic none", "topic none does not exist", 1),
    Command("dlq show --log sqlite:///log.db", "missing option '--partition'"),
    Command("dlq inspect", "missing argument"),
    Command("history create", "log is required"),
    Command("history create --log sqlite:///log.db", "history is required: --history, TSDB_HISTORY or the file", 1),
    Command("history create --log sqlite:///log.db --history ftp://x", "is none of cassandra://HOST"),
    Command("history create --log sqlite:///log.db --history cassandra://h", "is none of cassandra://HOST"),
    Command("history check --log sqlite:///log.db --history sqlite:///garbage.db", "file is not a database", 1),
    Command("history windows --history sqlite:///nowhere.db", "nowhere.db", 1),
    Command("holes ls", "history is required", 1),
    Command("holes ls --history sqlite:///nowhere.db", "nowhere.db", 1),
    Command("holes accept --history sqlite:///history.db", "losses are accepted by their time"),
    Command("spark import", "missing argument"),
    Command("spark rebuild", "missing option '--from'"),
    Command("spark rebuild --from soon --to now", "'soon' is neither ms since the epoch"),
    Command("spark rebuild --from 2 --to 1 --log sqlite:///log.db", "the range from 2 ms to 1 ms is empty", 1),
    Command("spark nonsense", "no such command 'nonsense'"),
)

COMMANDS = (*WORDS, *ADDRESSES, *PAGES, *CREDENTIALS, *SELECTORS, *TIMES, *FORMS, *WRITERS, *TOOLS)

# Each of these runs again as a separate process, to show that a shell gives the results of the rows above.
PROCESSES = (
    WORDS[0],
    WORDS[8],
    ADDRESSES[0],
    ADDRESSES[10],
    ADDRESSES[15],
    CREDENTIALS[0],
    CREDENTIALS[8],
    SELECTORS[2],
    SELECTORS[21],
    TIMES[6],
    FORMS[9],
    WRITERS[0],
    WRITERS[5],
    TOOLS[7],
)
