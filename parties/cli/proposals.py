"""Proposals of studies to the service that runs on this host, for `study propose` and `study apply`."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from parties.cli.options import service_answer
from parties.config import Config, earlier_model, load_config
from parties.config.provenance import check_confirmed
from parties.identity.study_setup import create_study
from parties.storage.files import disk_errors, write_new


def propose_study(
    config: Path, folder: Path, *, authority: Path, out: Path, days: float
) -> tuple[dict[str, Any], Path]:
    """Proposes ``config``, and returns the service's answer and the path of the configuration as proposed.

    One without servers gets those of the service, in the folder ``out``. Raises PartyError.
    """
    loaded, path = load_config(config), config
    check_confirmed(loaded)
    if not loaded.parties and (loaded.federation is None or loaded.federation.key is None):
        path = _merged(config, loaded, folder, authority=authority, out=out, days=days)
        loaded = load_config(path)
    return service_answer(folder, "POST", "/studies", _proposal(loaded)), path


def _merged(
    study: Path, config: Config, folder: Path, *, authority: Path, out: Path, days: float
) -> Path:
    """Writes the configuration with these servers into the folder ``out``, and returns its path. Raises PartyError."""
    kind = "distaim" if config.federation is None else config.federation.KEY
    texts = service_answer(folder, "POST", "/cards", {"kind": kind})["cards"]
    with TemporaryDirectory() as folder_path:
        cards = []
        for number, text in enumerate(texts):
            cards.append(Path(folder_path) / f"{number}.card")
            write_new(cards[-1], text.encode())
        create_study(study, cards, authority=authority, out=out, valid_days=days)
    return out / study.name


def _proposal(config: Config) -> dict[str, object]:
    """Returns the proposal for the service. Raises ConfigError, StoreError."""
    from parties.service.start_files import encoded_start

    names = [server.name for server in config.require_servers()]
    files = {"ca.crt": config.require_tls(name=names[0]).ca}
    for pid, name in enumerate(names):
        owner = config.require_tls(pid) if config.parties else config.require_tls(name=name)
        files[f"{name}.crt"] = owner.cert
    certificates = {}
    for name, path in files.items():
        with disk_errors(path, "read"):
            certificates[name] = path.read_text(encoding="ascii", errors="replace")
    earlier = earlier_model(config)
    if earlier is not None:
        config = config.override({"refresh.model": None})
    return {
        "config": config.resolved_toml(),
        "certificates": certificates,
        **encoded_start(earlier),
    }
