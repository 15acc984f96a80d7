# The control plane: signaling, relay credentials, metrics. No torch, no compiler.
#
#   docker build -f deploy/control.Dockerfile -t poolhouse-control .
#
# Any Debian with Python 3.12 or newer and its venv module can be the base.
ARG BASE=python:3.12-slim-trixie

FROM ${BASE} AS build
# A mirror of your own, where there is one.
ARG PIP_INDEX_URL
WORKDIR /src
# pip stays in /build: what goes into the image has no installer.
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/poolhouse
ENV PIP_CONSTRAINT=/src/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CACHE_DIR=/var/cache/pip
COPY constraints.txt pyproject.toml tools/list-requirements ./
RUN --mount=type=cache,target=/var/cache/pip \
    /build/bin/pip install cyclonedx-bom \
    && python3 list-requirements control redis > requirements.txt \
    && /build/bin/pip --python /opt/poolhouse install --requirement requirements.txt
COPY LICENSE README.md ./
COPY control control
COPY node node
RUN --mount=type=cache,target=/var/cache/pip \
    /build/bin/pip --python /opt/poolhouse install --no-deps . \
    && /build/bin/cyclonedx-py environment --output-reproducible --of JSON \
       --pyproject pyproject.toml --output-file sbom.cdx.json /opt/poolhouse/bin/python

FROM ${BASE}
ARG VERSION=0.0.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="poolhouse control" \
      org.opencontainers.image.description="Control plane of poolhouse: signaling, relay credentials, metrics" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# What `poolhouse turn config` writes. Group 0 may write: platforms that draw a uid for each
# container keep that group.
RUN install --directory --owner=10001 --group=0 --mode=775 /var/lib/poolhouse
COPY --from=build /opt/poolhouse /opt/poolhouse
COPY --from=build /src/LICENSE /src/sbom.cdx.json /usr/share/doc/poolhouse/
COPY tools/debian-sbom /usr/share/doc/poolhouse/
RUN /usr/share/doc/poolhouse/debian-sbom > /usr/share/doc/poolhouse/debian.cdx.json
# HOME is where a uid without an entry in /etc/passwd may write, if a tmpfs is there.
ENV PATH=/opt/poolhouse/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Any other uid does as well.
USER 10001:0
EXPOSE 8080 9090
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["poolhouse", "health"]
ENTRYPOINT ["poolhouse"]
CMD ["control"]
