"""[compute]: cores, a GPU or a Dask cluster have the same sums to the bit; what cannot be used is said."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from distributed import LocalCluster

from parties.config import ComputeSection, Config, config_from_dict
from parties.foundation.errors import ComputeError, ConfigError
from parties.session import dask_cluster
from parties.session.compute_pool import local_products
from parties.session.dask_cluster import dask_products
from protocols.context import Context
from protocols.products import LocalProducts, NumpyProducts, Pair
from protocols.products_gpu import CupyProducts, gpu_products
from protocols.ring import BITS
from protocols.row_plan import plan_counting
from protocols.rows import count_rows
from protocols.shares import Share
from tests.protocols.local import components, reconstruct, run_parties, share_of

PAIRS = [Pair(slice(0, 3), slice(3, 40)), Pair(slice(10, 30), slice(10, 30))]


def blocks(*rows: int) -> list[np.ndarray]:
    generator = np.random.default_rng(3)
    return [generator.integers(-(2**15), 2**15, (40, n), np.int16) for n in rows]


async def summed(products: LocalProducts, *rows: int) -> list[np.ndarray]:
    sums = products.start(PAIRS)
    for block in blocks(*rows):
        await sums.add(block)
    return await sums.result()


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler and two workers of two threads, in this process."""
    options = {
        "processes": False,
        "dashboard_address": None,
        "protocol": "tcp",
        "host": "127.0.0.1",
        "local_directory": str(tmp_path_factory.mktemp("dask")),
    }
    with LocalCluster(n_workers=2, threads_per_worker=2, **options) as local:
        yield str(local.scheduler_address)


async def test_a_dask_cluster_has_the_same_sums(dask: str) -> None:
    async with local_products(ComputeSection(dask=dask)) as products:
        found = await summed(products, 64, 100, 0, 7, *[10] * 20)
    here = await summed(NumpyProducts(1), 64, 100, 0, 7, *[10] * 20)
    assert all(map(np.array_equal, found, here))
    assert found[0].dtype == np.uint16


async def test_a_dask_cluster_counts_nothing_as_nothing(dask: str) -> None:
    async with dask_products(dask) as products:
        assert [sums.tolist() for sums in await summed(products)] == [
            np.zeros((3, 37)).tolist(),
            np.zeros((20, 20)).tolist(),
        ]


async def test_a_dask_worker_that_fails_ends_in_one_error(
    dask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(dask_cluster, "_worker_functions", lambda: (failing, failing))
    async with dask_products(dask) as products:
        with pytest.raises(
            ComputeError, match=r"Dask cluster at tcp://.* failed: MemoryError: no room"
        ):
            await summed(products, 64)


async def test_a_scheduler_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "_CONNECT_S", 0.2)
    with pytest.raises(ComputeError, match=r"no Dask scheduler answers at tcp://127.0.0.1:1 "):
        async with local_products(ComputeSection(dask="tcp://127.0.0.1:1")):
            pass


async def test_a_cluster_without_dask_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "parties.session.dask_cluster")
    with pytest.raises(ComputeError, match=r"needs distributed: pip install 'syncret\[compute\]'"):
        async with local_products(ComputeSection(dask="tcp://127.0.0.1:1")):
            pass


def test_what_dask_workers_run_is_sent_with_its_code() -> None:
    """A process that knows nothing of this project adds up."""
    from distributed.protocol.pickle import dumps

    sums_of, added = dask_cluster._worker_functions()
    program = (
        "import sys, pickle, numpy as np\n"
        f"sums_of, added = pickle.loads({dumps((sums_of, added))!r})\n"
        "one = sums_of(np.arange(6, dtype=np.int16).reshape(2, 3), [(0, 1, 0, 2)])\n"
        "assert not any(m.split('.')[0] in ('parties', 'protocols') for m in sys.modules)\n"
        "print(added(one, one).tolist())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, cwd="/"
    )
    assert ran.stdout.strip() == "[10, 28]"


# A GPU: no test machine has to have one, so CuPy is NumPy by another name.


def stand_in(devices: int = 1, **changes: object) -> SimpleNamespace:
    class NoDriver(Exception):
        pass

    def count() -> int:
        if devices < 0:
            raise NoDriver
        return devices

    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=NoDriver)
    names = {name: getattr(np, name) for name in ("zeros", "asarray", "float64")}
    cupy = {"cuda": SimpleNamespace(runtime=runtime), "asnumpy": np.asarray}
    return SimpleNamespace(**(names | cupy | changes))


async def test_a_gpu_has_the_same_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", stand_in())
    async with local_products(ComputeSection()) as products:
        assert isinstance(products, CupyProducts)
        found = await summed(products, 64, 100, 0)
    assert all(map(np.array_equal, found, await summed(NumpyProducts(1), 64, 100, 0)))


@pytest.mark.parametrize("devices", [0, -1])
async def test_without_a_gpu_the_cores_count(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", stand_in(devices))
    async with local_products(ComputeSection(threads=3)) as products:
        assert isinstance(products, NumpyProducts)
        assert products.threads == 3
    with pytest.raises(ComputeError, match=r'compute.gpu is "always", and CuPy finds no GPU'):
        async with local_products(ComputeSection(gpu="always")):
            pass


async def test_a_gpu_is_left_alone_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", stand_in())
    async with local_products(ComputeSection(gpu="never")) as products:
        assert isinstance(products, NumpyProducts)


async def test_a_gpu_that_rounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(operand: np.ndarray) -> np.ndarray:
        return operand.astype(np.float32)

    monkeypatch.setitem(sys.modules, "cupy", stand_in(asarray=rounded, float64=np.float32))
    with pytest.raises(ArithmeticError, match="not exact"):
        gpu_products()
    with pytest.raises(ComputeError, match='gpu = "never"'):
        async with local_products(ComputeSection()):
            pass


# Counting with each of them, and the section itself.


def test_counts_are_those_of_the_rows_wherever_sums_are_computed() -> None:
    plan = plan_counting((3, 40, 7), ((0, 1), (1, 2)))
    generator = np.random.default_rng(5)
    codes = generator.integers(0, plan.layout.sizes, (200, 3)).astype(np.int32)
    rows = plan.layout.planes([(250, plan.layout.pack(codes, 250))])
    parts = components(BITS, rows)

    async def program(ctx: Context, products: LocalProducts) -> Share:
        return await count_rows(ctx, share_of(ctx, parts, BITS), 250, plan, products=products)

    counts = [
        reconstruct(run_parties(lambda c, p=products: program(c, p)).results)
        for products in (NumpyProducts(2), CupyProducts(stand_in()))
    ]
    assert np.array_equal(*counts)
    assert counts[0].sum() == 400


CONFIG = {
    "run": {"id": "x", "epsilon": 1.0, "delta": 1e-5, "rounds": 1},
    "clients": {"expected": 1, "rows_per_client": 10},
    "column": [{"name": "a", "kind": "categorical", "categories": ["x", "y"]}],
}


def config(**compute: object) -> Config:
    return config_from_dict(CONFIG | {"compute": compute}, source="x.toml", base=Path())


def test_compute_is_a_server_s_own_affair() -> None:
    mine = config(threads=2, gpu="never", dask="tls://scheduler.example:8786")
    assert mine.compute == ComputeSection(2, "never", "tls://scheduler.example:8786")
    assert mine.digest() == config().digest()
    assert config_from_dict(mine.to_dict(), source="x.toml", base=Path()) == mine


@pytest.mark.parametrize(
    ("compute", "said"),
    [
        ({"threads": -1}, "compute.threads: is -1"),
        ({"gpu": "two"}, "compute.gpu: is 'two'; expected one of auto, never, always"),
        ({"dask": "scheduler:8786"}, "compute.dask: is 'scheduler:8786'; expected the address"),
        ({"cores": 2}, "compute.cores"),
    ],
)
def test_compute_refuses_what_it_is_not(compute: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(**compute)
