"""Compiled part of Syncret, which an installation lacks where there is no C compiler; all else is in pyproject.toml.

Without this file the wheel is the same for all systems: `deploy/pack.py` leaves it out.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            f"protocols.{name}",
            [f"protocols/{name}.c"],
            depends=["protocols/_variants.h"],
            extra_compile_args=["-O3"],
            py_limited_api=True,
            optional=True,
        )
        for name in ("_galois", "_gates", "_products")
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
