// The same on a GPU: a thread for each number of the result, tiles in shared memory, and sparse ones. Matrices are
// row-major f32 of the device; launches go to the stream and are not waited for.
#include <cstdint>

namespace {

constexpr int kTile = 32;

__global__ void naive(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                      std::int64_t k) {
  const std::int64_t j = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  const std::int64_t i = blockIdx.y * static_cast<std::int64_t>(blockDim.y) + threadIdx.y;
  if (i >= m || j >= k) return;
  float sum = 0;
  for (std::int64_t l = 0; l < n; ++l) sum += a[i * n + l] * b[l * k + j];
  c[i * k + j] = sum;
}

__global__ void shared(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                       std::int64_t k) {
  __shared__ float left[kTile][kTile], right[kTile][kTile];
  const std::int64_t j = blockIdx.x * static_cast<std::int64_t>(kTile) + threadIdx.x;
  const std::int64_t i = blockIdx.y * static_cast<std::int64_t>(kTile) + threadIdx.y;
  float sum = 0;
  for (std::int64_t l0 = 0; l0 < n; l0 += kTile) {
    const std::int64_t of_left = l0 + threadIdx.x, of_right = l0 + threadIdx.y;
    left[threadIdx.y][threadIdx.x] = i < m && of_left < n ? a[i * n + of_left] : 0;
    right[threadIdx.y][threadIdx.x] = of_right < n && j < k ? b[of_right * k + j] : 0;
    __syncthreads();
#pragma unroll
    for (int l = 0; l < kTile; ++l) sum += left[threadIdx.y][l] * right[l][threadIdx.x];
    __syncthreads();
  }
  if (i < m && j < k) c[i * k + j] = sum;
}

// A block for a row of the result; its threads go along the row.
__global__ void csr(const std::int64_t* starts, const std::int64_t* columns, const float* values,
                    const float* b, float* c, std::int64_t k) {
  const std::int64_t i = blockIdx.x;
  for (std::int64_t j = threadIdx.x; j < k; j += blockDim.x) {
    float sum = 0;
    for (std::int64_t at = starts[i]; at < starts[i + 1]; ++at) {
      sum += values[at] * b[columns[at] * k + j];
    }
    c[i * k + j] = sum;
  }
}

// A block for a number of a; c is zero before.
__global__ void coo(const std::int64_t* rows, const std::int64_t* columns, const float* values,
                    const float* b, float* c, std::int64_t k) {
  const std::int64_t at = blockIdx.x;
  for (std::int64_t j = threadIdx.x; j < k; j += blockDim.x) {
    atomicAdd(c + rows[at] * k + j, values[at] * b[columns[at] * k + j]);
  }
}

dim3 grid(std::int64_t m, std::int64_t k) {
  return {static_cast<unsigned>((k + kTile - 1) / kTile),
          static_cast<unsigned>((m + kTile - 1) / kTile)};
}

}  // namespace

extern "C" {

int study_cuda_naive(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                     std::int64_t k, void* stream) {
  naive<<<grid(m, k), dim3(kTile, kTile), 0, static_cast<cudaStream_t>(stream)>>>(a, b, c, m, n, k);
  return cudaGetLastError();
}
int study_cuda_shared(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                      std::int64_t k, void* stream) {
  shared<<<grid(m, k), dim3(kTile, kTile), 0, static_cast<cudaStream_t>(stream)>>>(a, b, c, m, n,
                                                                                   k);
  return cudaGetLastError();
}
int study_cuda_csr(const std::int64_t* starts, const std::int64_t* columns, const float* values,
                   const float* b, float* c, std::int64_t m, std::int64_t k, void* stream) {
  csr<<<static_cast<unsigned>(m), 256, 0, static_cast<cudaStream_t>(stream)>>>(starts, columns,
                                                                               values, b, c, k);
  return cudaGetLastError();
}
int study_cuda_coo(const std::int64_t* rows, const std::int64_t* columns, const float* values,
                   std::int64_t count, const float* b, float* c, std::int64_t m, std::int64_t k,
                   void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (const cudaError_t error = cudaMemsetAsync(c, 0, sizeof(float) * m * k, on)) return error;
  coo<<<static_cast<unsigned>(count), 256, 0, on>>>(rows, columns, values, b, c, k);
  return cudaGetLastError();
}

}  // extern "C"
