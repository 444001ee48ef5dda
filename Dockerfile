# preflight on top of an image that has PyTorch. The base stays as it is: all that is added lies in
# /opt/preflight. Two bases of equal rank, by the GPUs and the driver that they are for:
#   docker.io/pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime   V100 to H200, driver >= 525.60.13
#   docker.io/pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime   T4 to B200, driver >= 580.65.06
# or the image of the job itself, which is the most honest gate.
ARG BASE_IMAGE=docker.io/pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime

FROM ${BASE_IMAGE} AS build
USER 0
COPY . /src
RUN sh /src/docker/install.sh /src /opt/preflight

FROM ${BASE_IMAGE}
ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="preflight" \
      org.opencontainers.image.description="Can this node keep its GPU fed? A gate in front of a training job." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"

USER 0
COPY --from=build /opt/preflight /opt/preflight
# Whoever runs it may write reports, also on a volume that takes over this folder's mode.
RUN mkdir -p /data /reports && chmod 1777 /reports

# HOME and USER: torch and Python look for both, and an arbitrary UID has neither.
# utility: without it the NVIDIA runtime leaves NVML out.
ENV PATH="${PATH}:/opt/preflight/bin" \
    HOME=/tmp \
    USER=preflight \
    TORCH_HOME=/tmp/torch \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PREFLIGHT_REPORT_DIR=/reports

USER 10001:10001
WORKDIR /
# dumb-init as PID 1 takes in orphans and passes signals on.
ENTRYPOINT ["/opt/preflight/bin/dumb-init", "--", "/opt/preflight/bin/preflight"]
