# Two stages: pinned, hashed packages are installed in the first, where hot modules are made machine
# code as well (the compiler reads the types of what is imported); the second has no leftovers of
# installer or compiler and runs as nobody in particular.
FROM python:3.13-slim AS build
WORKDIR /src
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY requirements/run.txt requirements/build.txt requirements/
RUN python -m venv /opt/specroute \
 && /opt/specroute/bin/pip install --no-cache-dir --require-hashes -r requirements/run.txt \
 && pip install --no-cache-dir --require-hashes -r requirements/build.txt -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY router router
COPY policies policies
RUN HATCH_BUILD_HOOK_ENABLE_MYPYC=1 pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
 && /opt/specroute/bin/pip install --no-cache-dir --no-deps /dist/*.whl

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/specroute --create-home specroute
COPY --from=build /opt/specroute /opt/specroute
ENV PATH=/opt/specroute/bin:$PATH PYTHONUNBUFFERED=1
USER specroute
WORKDIR /var/lib/specroute
EXPOSE 8080
# In a container set `listen.host: 0.0.0.0`; the embedded store keeps its data in this volume.
VOLUME /var/lib/specroute
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["specroute"]
CMD ["serve", "-c", "/etc/specroute/specroute.yaml"]
