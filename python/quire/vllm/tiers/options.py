"""The options of QuireConnector: kv_connector_extra_config, one table.

    {"host_bytes": "64GiB", "file": {"path": "/nvme/quire", "bytes": "1TiB"}, "redis": {"servers": [...]}}

An option that is not in the table, or a value outside of its range, is refused with a sentence.
"""
import re
from dataclasses import dataclass
from typing import Any

UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
ADMITS = {"all": 0, "reused": 1}  # quire_offload_admit
LOADS = {"faster": 1, "always": 2}  # quire_switch of quire_planner_config.learns
SWITCHES = {"auto": 0, "on": 1, "off": 2}  # quire_switch


@dataclass(frozen=True)
class Option:
    """One option. kind: bytes, count, flag, text, texts, choice."""

    name: str
    kind: str
    default: Any
    least: int = 0
    most: int = 0
    choices: dict[str, int] | None = None
    meaning: str = ""

    def range_text(self) -> str:
        if self.kind == "choice":
            return " | ".join(f'"{name}"' for name in self.choices)
        if self.kind == "flag":
            return "true | false"
        if self.kind in ("text", "texts"):
            return {"text": "text", "texts": "list of texts"}[self.kind]
        return f"{self.least}..{self.most}"


MOST_BYTES = 1 << 50

HOST = (
    Option("host_bytes", "bytes", None, 1, MOST_BYTES,
           meaning="host memory for blocks, all ranks of the engine together"),
    Option("host_blocks", "count", None, 2, (1 << 31) - 1,
           meaning="instead of host_bytes: blocks in the host memory of each rank"),
    Option("load", "choice", "faster", choices=LOADS,
           meaning="what is loaded from the tiers below: blocks that load faster than they compute, "
                   "by what was measured, or all"),
    Option("hugepages", "choice", "auto", choices=SWITCHES,
           meaning="host memory in reserved huge pages: if available, or fail, or never"),
    Option("namespace", "text", "",
           meaning="blocks are shared by engines with the same model and the same namespace"),
    Option("max_requests", "count", 65_536, 1, 1 << 24,
           meaning="requests known at a time; more of them do not use the tiers"),
    Option("self_test", "flag", True,
           meaning="at start, store and load a block through all tiers, and compare"),
    Option("self_test_timeout_ms", "count", 10_000, 1, 600_000,
           meaning="the longest wait for the self test"),
    Option("shutdown_timeout_ms", "count", 5_000, 0, 600_000,
           meaning="the longest wait for transfers at shutdown"),
)

COMMON = (
    Option("timeout_ms", "count", 5_000, 1, 600_000,
           meaning="after this time a load counts as failed: the tokens are computed"),
    Option("admit", "choice", "all", choices=ADMITS,
           meaning="which blocks are stored: all, or those that were a hit before"),
)

FILE = COMMON + (
    Option("path", "text", None,
           meaning="directory; each rank has one file in it, or shares its files"),
    Option("bytes", "bytes", None, 1, MOST_BYTES,
           meaning="capacity, all ranks of the engine together"),
    Option("shared", "flag", False,
           meaning="several engines use the directory: one file for each block"),
    Option("checkpoint_ms", "count", 30_000, 10, 3_600_000,
           meaning="time between checkpoints: blocks stored after the last one are lost in a crash"),
)

REDIS = COMMON + (
    Option("servers", "texts", None,
           meaning='"host:6379" or "unix:/run/redis.sock": some nodes of a cluster, or one server'),
    Option("prefix", "text", "quire", meaning="begin of all keys"),
    Option("user", "text", None, meaning="ACL user"),
    Option("password", "text", None, meaning="its password"),
    Option("password_file", "text", None,
           meaning="instead of password: read again for each connection"),
    Option("ttl_ms", "count", 0, 0, 1 << 53, meaning="blocks expire after this time; 0: never"),
    Option("connections", "count", 3, 1, 64, meaning="to each node, of each rank"),
    Option("tls", "flag", False, meaning="TLS, with verified certificates"),
    Option("tls_ca_file", "text", None, meaning="PEM file; none: the system's CAs"),
    Option("tls_cert_file", "text", None, meaning="PEM file of a client certificate"),
    Option("tls_key_file", "text", None, meaning="its key"),
    Option("tls_server_name", "text", None, meaning="name in the servers' certificates"),
    Option("trust_network", "flag", False,
           meaning="allow servers beyond this machine without TLS"),
)

OBJECT = COMMON + (
    Option("bucket", "text", None, meaning="an existing bucket of a store with the S3 protocol"),
    Option("endpoint", "text", None,
           meaning='"https://minio.example:9000"; none: AWS S3 in the region'),
    Option("region", "text", None,
           meaning="none: the environment's AWS_REGION, AWS_DEFAULT_REGION, or us-east-1"),
    Option("prefix", "text", "quire", meaning="begin of all names"),
    Option("virtual_host", "choice", "auto", choices=SWITCHES,
           meaning="the bucket is part of the host name: for AWS S3, or always, or never"),
    Option("access_key", "text", None,
           meaning="none of the credentials: the environment's, as the AWS tools find them"),
    Option("secret_key", "text", None, meaning="of access_key"),
    Option("session_token", "text", None, meaning="of access_key, if it is temporary"),
    Option("credentials_file", "text", None,
           meaning="instead of access_key: as the AWS tools have it; read again when it changes"),
    Option("profile", "text", None, meaning='in credentials_file; none: AWS_PROFILE, or "default"'),
    Option("credentials_uri", "text", None,
           meaning="instead of access_key: asked for credentials, and again before they expire"),
    Option("credentials_token_file", "text", None,
           meaning="file with the Authorization header for credentials_uri"),
    Option("connections", "count", 32, 1, 256, meaning="requests in flight, of each rank"),
    Option("sign_payload", "choice", "auto", choices=SWITCHES,
           meaning="the signature covers the bytes: without TLS, or always, or never"),
    Option("tls_ca_file", "text", None, meaning="PEM file; none: the system's CAs"),
    Option("tls_cert_file", "text", None, meaning="PEM file of a client certificate"),
    Option("tls_key_file", "text", None, meaning="its key"),
    Option("trust_network", "flag", False,
           meaning="allow endpoints beyond this machine without TLS"),
)

# The tiers below host memory, from the fastest to the slowest.
TIERS: dict[str, tuple[Option, ...]] = {"file": FILE, "redis": REDIS, "object": OBJECT}
NEEDED = {"file": ("path", "bytes"), "redis": ("servers",), "object": ("bucket",)}


def refuse(sentence: str) -> None:
    raise ValueError(f"QuireConnector: {sentence}")


def read_number(where: str, option: Option, value: Any) -> int:
    if option.kind == "bytes" and isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([BKMGT]?)(?:iB)?\s*", value)
        if not found:
            refuse(f'invalid value "{value}" for {where} (expected bytes, such as 68719476736 or '
                   '"64GiB")')
        value = int(float(found[1]) * UNITS[found[2]])
    if isinstance(value, bool) or not isinstance(value, int):
        refuse(f"invalid value {value!r} for {where} (expected a whole number)")
    if not option.least <= value <= option.most:
        refuse(f"invalid value {value} for {where} (expected {option.range_text()})")
    return value


def read_value(where: str, option: Option, value: Any) -> Any:
    if option.kind in ("bytes", "count"):
        return read_number(where, option, value)
    if option.kind == "choice":
        if value not in option.choices:
            refuse(f"invalid value {value!r} for {where} (expected {option.range_text()})")
        return value
    wanted = {"flag": bool, "text": str, "texts": list}[option.kind]
    if not isinstance(value, wanted) or (option.kind == "texts"
                                         and not (value and all(isinstance(v, str) for v in value))):
        refuse(f"invalid value {value!r} for {where} (expected {option.range_text()})")
    return value


def read_table(where: str, table: tuple[Option, ...], given: Any) -> dict[str, Any]:
    """The values of a table, with defaults."""
    if not isinstance(given, dict):
        refuse(f"invalid value {given!r} for {where} (expected an object with options)")
    by_name = {option.name: option for option in table}
    for name in given:
        if name not in by_name:
            inner = f"{where}.{name}" if where else name
            refuse(f"unknown option {inner} (expected one of {', '.join(by_name)})")
    prefix = f"{where}." if where else ""
    return {name: option.default if given.get(name) is None
            else read_value(prefix + name, option, given[name])
            for name, option in by_name.items()}


@dataclass(frozen=True)
class Options:
    host: dict[str, Any]
    tiers: tuple[tuple[str, dict[str, Any]], ...]  # (kind, values), from the fastest to the slowest


def read_tier(kind: str, given: Any) -> dict[str, Any]:
    values = read_table(kind, TIERS[kind], given)
    for name in NEEDED[kind]:
        if values[name] is None:
            refuse(f"{kind}.{name} is missing")
    return values


def read_options(given: dict[str, Any] | None) -> Options:
    given = dict(given or {})
    tiers = tuple((kind, read_tier(kind, given.pop(kind))) for kind in TIERS if kind in given)
    known = [option.name for option in HOST]
    for name in given:
        if name not in known:
            refuse(f"unknown option {name} (expected one of {', '.join([*known, *TIERS])})")
    host = read_table("", HOST, given)
    if (host["host_bytes"] is None) == (host["host_blocks"] is None):
        refuse('give host_bytes (for example "64GiB"), or host_blocks')
    return Options(host, tiers)
