# coturn as Debian packages it: the version that `poolhouse turn config` writes its file for.
#
#   docker build -f deploy/relay.Dockerfile -t poolhouse-relay .
ARG BASE=debian:trixie-slim

FROM ${BASE}
ARG VERSION=0.0.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="poolhouse relay" \
      org.opencontainers.image.description="coturn, for a file made by poolhouse turn config" \
      org.opencontainers.image.licenses="BSD-3-Clause" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# The newest that Debian has fixed counts here, not a version. coturn does not handle SIGTERM, and the
# kernel keeps from a first process what it does not handle: tini takes that place and passes it on.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends coturn tini \
    && rm -rf /var/lib/apt/lists/*
COPY LICENSE tools/debian-sbom /usr/share/doc/poolhouse/
RUN /usr/share/doc/poolhouse/debian-sbom > /usr/share/doc/poolhouse/debian.cdx.json
USER 10001:0
EXPOSE 3478/udp 3478/tcp 5349/tcp
# Asks for its own address over UDP; without an answer it waits, and the timeout ends it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["turnutils_stunclient", "-p", "3478", "127.0.0.1"]
ENTRYPOINT ["tini", "--", "turnserver"]
CMD ["-c", "/etc/poolhouse/turnserver.conf", "--log-file", "stdout"]
