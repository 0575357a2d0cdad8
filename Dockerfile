# The image of the action, and of the command line: `docker run … servegate --help`.
#
# GitHub's runner builds this file without build arguments when a workflow names the action by branch or commit. Then
# BASE is the tag below. A release is built with BASE=python:3.13-slim@sha256:… (the digest that the release workflow
# looked up; it is kept in the signed provenance), and its tag's action.yml names the finished image by digest, so that
# a workflow on a release pulls that image, and builds nothing.
ARG BASE=python:3.13-slim

# hadolint ignore=DL3006
FROM ${BASE} AS build
WORKDIR /src
ENV UV_NO_CONFIG=1 UV_NO_CACHE=1 UV_LINK_MODE=copy UV_SYSTEM_CERTS=1 VIRTUAL_ENV=/opt/servegate
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/servegate
# The locked packages, by hash, wheels only: there is no compiler here, and none is needed. Bytecode ahead of time, and
# never checked again: a container has no second start to profit from.
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN /opt/build/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/build.txt \
 && /opt/build/bin/uv pip sync --quiet --require-hashes --only-binary :all: requirements/runtime.txt \
 && rm -rf /opt/servegate/lib/python3.*/site-packages/numpy/*/tests /opt/servegate/lib/python3.*/site-packages/numpy/tests \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/servegate/lib
COPY pyproject.toml README.md LICENSE ./
COPY servegate_action servegate_action
RUN /opt/build/bin/hatchling build -t wheel -d /wheel \
 && /opt/build/bin/uv pip install --quiet --no-deps /wheel/*.whl \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/servegate/lib/python3.*/site-packages/servegate_action
# Three doors to the same code. They are Python and not shell: the inputs of an action are variables such as
# INPUT_GITHUB-TOKEN, and dash drops names with a hyphen. -I: no variable of the job (PYTHONPATH, PYTHONSTARTUP, …) and
# no file of the working directory can bring code in here, next to the token.
COPY docker/servegate docker/servegate-action docker/servegate-post /opt/servegate/bin/
RUN chmod 0755 /opt/servegate/bin/servegate*

# hadolint ignore=DL3006
FROM ${BASE}
LABEL org.opencontainers.image.title="servegate" \
      org.opencontainers.image.description="Measures a change to an LLM serving stack before it is merged" \
      org.opencontainers.image.source="https://github.com/servegate/servegate" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/servegate/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1
COPY --from=build /opt/servegate /opt/servegate
# Load what a run loads, so that the standard library's bytecode is there, too, and show that the image works.
RUN env -u PYTHONDONTWRITEBYTECODE python3 -I -c "import servegate_action.action, servegate_action.telemetry.child" \
 && servegate --version
# Root, because the runner's workspace and the engine's socket belong to root inside a container action.
ENTRYPOINT ["servegate"]
CMD ["--help"]
