# docker build -f docker/cuda.Dockerfile -t elmo-fast:cuda . && docker run --rm --gpus all elmo-fast:cuda check
# Triton compiles a C launcher at run time, so the compiler and Python's headers stay in the image.
FROM nvidia/cuda:13.0.1-base-ubuntu24.04
RUN apt-get update && apt-get install -y --no-install-recommends g++ python3-dev python3-venv && rm -rf /var/lib/apt/lists/*
ENV VIRTUAL_ENV=/opt/venv PATH=/opt/venv/bin:$PATH
RUN python3 -m venv /opt/venv && pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cu130
RUN pip install --no-cache-dir "setuptools>=77" wheel "cmake>=3.24" ninja "pybind11>=2.13"
WORKDIR /src
COPY . .
RUN ELMO_FAST_REQUIRE_NATIVE=1 pip install --no-cache-dir --no-build-isolation . && elmo-fast info
WORKDIR /data
ENTRYPOINT ["elmo-fast"]
