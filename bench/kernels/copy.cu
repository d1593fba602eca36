// The ladder of a copy: how much of memory's speed the ways to load and store reach.
#include "ladder.cuh"

namespace {

constexpr std::size_t kElems = std::size_t{1} << 28;  // 1.07 GB
constexpr int kThreads = 256;

__global__ void value_a_thread(const float* in, float* out) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  out[i] = in[i];
}

// Of each block kLoads stretches of 4 KB, all loaded before the first is stored.
template <int kLoads, bool kStreamLoads, bool kStreamStores>
__global__ void quads(const float4* in, float4* out) {
  const std::size_t first = std::size_t{blockIdx.x} * kThreads * kLoads + threadIdx.x;
  float4 values[kLoads];
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    const float4* from = in + first + k * kThreads;
    values[k] = kStreamLoads ? __ldcs(from) : *from;
  }
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    float4* to = out + first + k * kThreads;
    if constexpr (kStreamStores) {
      __stcs(to, values[k]);
    } else {
      *to = values[k];
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  ladder::Ladder steps("copy", argc, argv);
  const std::vector<float> values = ladder::noise(kElems);
  const ladder::Buffer<float> in(values), out(kElems);
  const auto rung = [&](const char* what, int elems_a_thread, auto launch) {
    out.poison();
    const auto blocks = static_cast<unsigned>(kElems / kThreads / elems_a_thread);
    const auto run = [&](cudaStream_t stream) { launch(blocks, stream); };
    steps.rung(what, 8.0 * kElems, run, [&] { return ladder::largest_error(out, values); });
  };
  const auto* in4 = reinterpret_cast<const float4*>(in.data());
  auto* out4 = reinterpret_cast<float4*>(out.data());
  rung("a value a thread", 1, [&](unsigned blocks, cudaStream_t stream) {
    value_a_thread<<<blocks, kThreads, 0, stream>>>(in.data(), out.data());
  });
  const auto four = [&]<int kLoads, bool kLd, bool kSt>(const char* what) {
    rung(what, 4 * kLoads, [&](unsigned blocks, cudaStream_t stream) {
      quads<kLoads, kLd, kSt><<<blocks, kThreads, 0, stream>>>(in4, out4);
    });
  };
  four.template operator()<1, false, false>("16 bytes a thread");
  four.template operator()<2, false, false>("2 x 16 bytes a thread");
  four.template operator()<4, false, false>("4 x 16 bytes a thread");
  four.template operator()<4, false, true>("4 x 16 bytes a thread, streaming stores");
  four.template operator()<4, true, true>("4 x 16 bytes a thread, streaming loads and stores");
  return steps.finish();
}
