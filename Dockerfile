# glydd and glyd in an image: docker build -t glydd .   Packing alone: --target packer.
# One image for machines with and without a GPU: a driver comes from the host's container toolkit.
ARG BASE=debian:12-slim

FROM ${BASE} AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /src
COPY tools/deps tools/nvcc tools/
RUN tools/deps build && tools/nvcc
COPY . .
# What the programs need to run goes from here into the later stages: their libraries' packages.
RUN --mount=type=cache,target=/root/.cache/ccache \
    cmake -S . -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DGLYD_TESTS=OFF \
    && cmake --build /build --parallel "$(nproc)" -- --quiet \
    && cmake --install /build --prefix /usr --component programs --strip \
    && packages() { ldd "$@" | sed -nE 's#.* => .*/([^ /]+) .*#*/\1#p' | sort -u \
         | xargs dpkg -S | cut -d: -f1 | sort -u | tr '\n' ' '; } \
    && packages /usr/bin/glydd /usr/bin/glyd /usr/libexec/glyd-worker >/packages \
    && packages /usr/bin/glyd >/packages-glyd

# Both images: a user without a name, its home in memory where one is mounted.
FROM ${BASE} AS packer
COPY --from=build /packages-glyd /tmp/packages
# hadolint ignore=DL3008
RUN apt-get update \
    && xargs -a /tmp/packages apt-get install -y --no-install-recommends \
    && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* /tmp/packages
COPY --from=build /usr/bin/glyd /usr/bin/
COPY --from=build /usr/share/doc/glydd/LICENSE /usr/share/doc/glydd/NOTICE /usr/share/doc/glydd/
USER 65532:65532
WORKDIR /work
ENTRYPOINT ["/usr/bin/glyd"]
CMD ["--help"]
LABEL org.opencontainers.image.title="glyd" \
      org.opencontainers.image.description="packs bf16 language models without loss, verifies and unpacks them" \
      org.opencontainers.image.licenses="Apache-2.0"

FROM ${BASE} AS glydd
COPY --from=build /packages /tmp/packages
# hadolint ignore=DL3008
RUN apt-get update \
    && xargs -a /tmp/packages apt-get install -y --no-install-recommends \
    && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* /tmp/packages \
    && install -d -o 65532 -g 65532 -m 711 /run/glydd && install -d -o 65532 -g 65532 -m 700 /var/lib/glydd
COPY --from=build /usr/bin/glydd /usr/bin/glyd /usr/bin/
COPY --from=build /usr/libexec/glyd-worker /usr/libexec/
COPY --from=build /usr/share/doc/glydd/LICENSE /usr/share/doc/glydd/NOTICE /usr/share/doc/glydd/
ENV GLYDD_SOCKET=/run/glydd/glydd.sock GLYDD_STATE=/var/lib/glydd NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
WORKDIR /
VOLUME ["/run/glydd", "/var/lib/glydd"]
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["/usr/bin/glyd", "-q", "health", "liveness"]
ENTRYPOINT ["/usr/bin/glydd"]
LABEL org.opencontainers.image.title="glydd" \
      org.opencontainers.image.description="serves packed language models from one copy in memory" \
      org.opencontainers.image.licenses="Apache-2.0"
