"""The description of the API for programs, at ``/api/openapi.json``. No page that loads scripts."""

from __future__ import annotations

from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import License

from poolhouse_control import __version__

__all__ = ["openapi_config"]


def openapi_config() -> OpenAPIConfig:
    """Describe what stands under ``/api``; signaling has a protocol of its own."""
    return OpenAPIConfig(
        title="poolhouse control plane",
        version=__version__,
        description="What programs and pages ask of a control plane, beside signaling.",
        license=License(name="Apache-2.0", identifier="Apache-2.0"),
        path="/api/openapi.json",
        render_plugins=[JsonRenderPlugin(path="/")],
    )
