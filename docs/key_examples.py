"""Examples of the page of keys, by the heading of their part; tests load each within a configuration."""

from collections.abc import Mapping

SEAL = "AAAA..."
"""A server's sealing key in examples, which is too long to be shown."""
_SERVERS = "\n".join(
    f"""
[[party]]
name = "{name}"
mesh = "{name}.example.org:7443"
ingest = "{name}.example.org:443"
key = "{number * 32}"
seal = "{SEAL}"                           # 1,624 letters, from the server's card
"""
    for name, number in (("alpha", "a1"), ("beta", "b2"), ("gamma", "c3"))
)

_TEXTS: Mapping[str, str] = {
    "[run]": """
[run]
id = "stays-2026"
epsilon = 1.0
delta = 1e-6
unit = "person"
rows_per_person = 3
person = ["patient_id"]                    # ignore lists it, too
security = "malicious"
terms = "For research alone."
""",
    "[workload]": """
[workload]
degree = 3
count = 64
seed = 7
target = "sex"
""",
    "[clients]": """
[clients]
names = ["north", "south", "east"]         # expected follows from it
minimum = 2
rows_per_client = 5000
opens = 2026-12-01T08:00:00+01:00
closes = 2026-12-18T18:00:00+01:00
grace_s = 3600
""",
    "[[column]] categorical": """
[[column]]
name = "diagnosis"
kind = "categorical"
categories = ["I21.0", "I21.4", "I50.1", "S72.0"]
prefix = 3                                 # I21.0 and I21.4 share a cell
other = "other"
missing = true
from = "public: ICD-10-GM 2026"

[[column]]
name = "drug"
kind = "categorical"
values = "private"                         # the run keeps the frequent ones
candidates = ["statin", "heparin", "insulin"]
""",
    "[[column]] integer": """
[[column]]
name = "days"
kind = "integer"
low = 0
high = 365
bins = 20
scale = "symlog"
atoms = [-1]
marks = ["unknown"]
from = { low = "public", high = "public: the tariff", atoms = "table" }
""",
    "[[column]] real": """
[[column]]
name = "cost"
kind = "real"
low = 0.0
high = 20000.0
bins = "private"                           # chosen from noisy counts
resolution = 512
coarse = 24
decimals = 2
format = "$#,##0.00"
endings = { "99" = 0.7, "00" = 0.3 }
""",
    "[[column]] date": """
[[column]]
name = "admitted"
kind = "date"
low = 2020-01-01
high = 2025-12-31
unit = "month"
format = "YYYY-MM"
bins = 24
""",
    "[[column]] datetime": """
[[column]]
name = "seen"
kind = "datetime"
edges = ["2025-01-01T00:00:00", "2025-04-01T00:00:00", "2025-12-31T23:59:59"]
within = ["2025-07-01T00:00:00"]
unit = "minute"
format = "YYYY-MM-DDTHH:MM"
""",
    "[[column]] with implied_by": """
[[column]]
name = "city"
kind = "categorical"
categories = ["Bonn", "Lyon"]

[[column]]
name = "country"
implied_by = "city"
values = { Bonn = "DE", Lyon = "FR" }
""",
    "ignore": """
ignore = ["patient_id", "note"]            # above all sections
""",
    "[[split]] with pattern": """
[[split]]
column = "pressure"
pattern = "{systolic}/{diastolic}"         # each part has its own [[column]]
marks = ["refused"]

[[column]]
name = "systolic"
kind = "integer"
low = 60
high = 250
marks = ["refused"]

[[column]]
name = "diastolic"
kind = "integer"
low = 30
high = 150
missing = true
""",
    "[[split]] with answers": """
[[split]]
column = "drugs"
separator = "; "
answers = ["statin", "other"]
other = "other"
before = "["
behind = "]"

[[column]]
name = "drugs: statin"
kind = "categorical"
categories = ["no", "yes"]

[[column]]
name = "drugs: other"
kind = "categorical"
categories = ["no", "yes"]
""",
    "[[constraint]] equals": """
[[constraint]]
column = "gross"
equals = "net + vat"
violations = "repair"
""",
    "[[constraint]] years_since": """
[[constraint]]
column = "age"
years_since = "birth"
on = 2024-12-31
""",
    "[[constraint]] born": """
[[constraint]]
column = "birth"
born = "age"
on = "visit"
""",
    "[[constraint]] order": """
[[constraint]]
order = ["birth", "visit"]
violations = "repair"
""",
    "[[constraint]] never": """
[[constraint]]
never = "pregnant = yes and sex = m"
""",
    "[[constraint]] when": """
[[constraint]]
when = "age < 12"
then = "pregnant = no"
""",
    "[[constraint]] shares": """
[[constraint]]
shares = ["net", "vat", "gross"]           # the last one is computed
total = 100
""",
    "[[constraint]] one_hot": """
[[constraint]]
one_hot = ["red", "green"]
column = "colour"
yes = "x"
no = ""
none = "grey"

[[column]]
name = "colour"
kind = "categorical"
categories = ["red", "green", "grey"]
""",
    "[[constraint]] follows": """
[[constraint]]
column = "pregnant"
follows = "sex"
values = { f = "yes", m = "no" }
""",
    "[missing]": """
[missing]
values = ["", "NA"]
""",
    "[format]": """
[format]
delimiter = ";"
decimal = ","
thousands = ["net"]
encoding = "cp1252"
line_end = "crlf"
quoting = "all"
""",
    "[[source]]": """
[[source]]
name = "hospitals"
columns = ["sex", "age"]                   # every [[column]] in exactly one source
key = ["national_number", "born"]
owners = ["north", "south"]

[[source]]
name = "registry"
columns = ["died"]
key = ["number", "date_of_birth"]
owners = ["registry"]
""",
    "[refresh]": f"""
[refresh]
model = "last-year.zip"
digest = "{"d4" * 32}"
""",
    "[[table]] of persons": """
[[table]]
name = "patients"
key = "patient_id"
linked = "rows"

[[table.column]]
name = "sex"
kind = "categorical"
categories = ["f", "m"]
""",
    "[[table]] with parent": """
[[table]]
name = "stays"
parent = "patients"
key = "patient_id"
rows = 3
most = 12
order = "admitted"
constant = ["blood_group"]

[[table.column]]
name = "admitted"
kind = "date"
low = 2020-01-01
high = 2025-12-31

[[table.column]]
name = "blood_group"
kind = "categorical"
categories = ["0", "A", "B", "AB"]

[[table.column]]
name = "weight"
kind = "integer"
low = 30
high = 250

[[table.change]]
name = "admitted"
kind = "integer"
low = 0
high = 900
bins = 16
""",
    "[[table.change]]": """
[[table.change]]
name = "weight"
kind = "integer"
low = -20
high = 20
bins = 10
from = "public"
""",
    "[[table.summary]] last": """
[[table.summary]]
kind = "last"
column = "weight"
""",
    "[[table.summary]] mean": """
[[table.summary]]
kind = "mean"
column = "weight"
""",
    "[[table.summary]] any": """
[[table.summary]]
kind = "any"
name = "heavy"
where = "weight > 120"
""",
    "[flaim]": f"""
[flaim]
variant = "pairs"
noise = "distributed"
minimum = 3
server = "hub"
key = "{"e5" * 32}"
address = "hub.example.org:7443"
clients = ["north", "south", "east"]
""",
    "[silos]": f"""
[silos]
noise = "distributed"
minimum = 3
server = "hub"
key = "{"e5" * 32}"
address = "hub.example.org:7443"
clients = ["north", "south", "east"]
""",
    "[tda]": """
[tda]
components = 8
mixture_share = 0.5
frequency_share = 0.2
""",
    "[mtl]": """
[mtl]
label = "age"
lambdas = ["0", "1", "fedavg"]
tuning_rounds = 2
held_out = 0.15
""",
    "[[party]]": _SERVERS,
    "[tls]": """
[tls]
ca = "tls/authority.crt"
cert = "tls/{name}.crt"
key = "tls/{name}.key"
""",
    "[timeouts]": """
[timeouts]
connect_s = 600.0
receive_s = 120.0
submit_s = 600.0
""",
    "[compute]": """
[compute]
threads = 8
gpu = "never"
dask = "tls://scheduler.example:8786"
""",
    "[network]": """
[network]
proxy = "http://proxy.example:3128"
proxy_login = "proxy.login"
""",
}
EXAMPLES: Mapping[str, str] = {title: text.strip() for title, text in _TEXTS.items()}
"""TOML by heading."""
