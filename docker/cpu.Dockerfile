# docker build -f docker/cpu.Dockerfile -t elmo-fast . && docker run --rm -v "$PWD:/data" elmo-fast embed sentences.txt vectors.hdf5
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir "setuptools>=77" wheel "cmake>=3.24" ninja "pybind11>=2.13"
WORKDIR /src
COPY . .
RUN ELMO_FAST_REQUIRE_NATIVE=1 pip wheel --no-deps --no-build-isolation -w /wheels .

FROM python:3.12-slim
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -rf /wheels && elmo-fast info
WORKDIR /data
ENTRYPOINT ["elmo-fast"]
