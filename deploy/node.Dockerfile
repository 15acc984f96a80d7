# A device: hosts a room, holds layers in one, or asks.
#
#   docker build -f deploy/node.Dockerfile --target cpu  -t poolhouse-node:cpu .
#   docker build -f deploy/node.Dockerfile --target cuda -t poolhouse-node:cuda .
#
# TORCH_INDEX is a package index that pip prefers for torch. PyTorch publishes one of builds without
# CUDA: with it the cpu image is some GB smaller. Empty takes the build of the default index, which
# has CUDA on x86-64. Any Debian with Python 3.12 or newer and its venv module can be the base.
ARG BASE=python:3.12-slim-trixie

FROM ${BASE} AS build
# A mirror of your own, where there is one.
ARG PIP_INDEX_URL
ARG TORCH_INDEX=""
WORKDIR /src
# pip stays in /build: what goes into the image has no installer.
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/poolhouse
ENV PIP_CONSTRAINT=/src/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CACHE_DIR=/var/cache/pip
COPY constraints.txt pyproject.toml tools/list-requirements ./
# A layer of its own: torch is most of the image.
RUN --mount=type=cache,target=/var/cache/pip \
    /build/bin/pip --python /opt/poolhouse install ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} torch
RUN --mount=type=cache,target=/var/cache/pip \
    /build/bin/pip install cyclonedx-bom \
    && python3 list-requirements node fast > requirements.txt \
    && /build/bin/pip --python /opt/poolhouse install --requirement requirements.txt
COPY LICENSE README.md ./
COPY control control
COPY node node
RUN --mount=type=cache,target=/var/cache/pip \
    /build/bin/pip --python /opt/poolhouse install --no-deps . \
    && /build/bin/cyclonedx-py environment --output-reproducible --of JSON \
       --pyproject pyproject.toml --output-file sbom.cdx.json /opt/poolhouse/bin/python

FROM ${BASE} AS runtime
ARG VERSION=0.0.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="poolhouse node" \
      org.opencontainers.image.description="A device of a poolhouse room" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# OpenMP, for the threads of compiled products. Folders for keys, passes and records, for model files
# and for compiled kernels: group 0 may write, which platforms that draw a uid for each container keep.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner=10001 --group=0 --mode=775 \
       /var/lib/poolhouse /var/cache/poolhouse /var/cache/poolhouse-kernels
COPY --from=build /opt/poolhouse /opt/poolhouse
COPY --from=build /src/LICENSE /src/sbom.cdx.json /usr/share/doc/poolhouse/
COPY tools/debian-sbom /usr/share/doc/poolhouse/
RUN /usr/share/doc/poolhouse/debian-sbom > /usr/share/doc/poolhouse/debian.cdx.json
# HOME and USER are for a uid without an entry in /etc/passwd: torch asks for both.
ENV PATH=/opt/poolhouse/bin:$PATH HOME=/tmp USER=poolhouse \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    POOLHOUSE_STATE=/var/lib/poolhouse POOLHOUSE_CACHE=/var/cache/poolhouse \
    NUMBA_CACHE_DIR=/var/cache/poolhouse-kernels TRITON_CACHE_DIR=/var/cache/poolhouse-kernels \
    POOLHOUSE_METRICS_PORT=9091 POOLHOUSE_HEALTH_URL=http://127.0.0.1:9091/livez
USER 10001:0
VOLUME ["/var/lib/poolhouse", "/var/cache/poolhouse", "/var/cache/poolhouse-kernels"]
EXPOSE 9091
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["poolhouse", "health"]
ENTRYPOINT ["poolhouse"]
CMD ["join"]

FROM runtime AS cuda
USER 0
# Triton compiles its binding to the driver that it finds on the machine: it needs a C compiler.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && /usr/share/doc/poolhouse/debian-sbom > /usr/share/doc/poolhouse/debian.cdx.json
USER 10001:0
# Read by the container runtime: which parts of the driver to bring in.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM runtime AS cpu
