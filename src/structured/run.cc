// Samples go through a kernel some at a time, all stages while they are in cache. Gradients of weights
// are summed over parts of the batch whose number follows from sizes alone, then over the parts, so
// that threads change no bit.
#include "structured/run.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "base/half.h"
#include "base/parallel.h"
#include "structured/tile/tile.h"

namespace tuckfold::structured {
namespace {

// ---- dtypes -------------------------------------------------------------------------------------

template <class Half>
void widen(const Half* in, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = to_float(in[i]);
}
void narrow(const float* in, std::int64_t count, float* out) { std::copy_n(in, count, out); }
void narrow(const double* in, std::int64_t count, double* out) { std::copy_n(in, count, out); }
// Beyond the largest number comes infinity, which is how a loss scaler sees that it scaled too much.
void narrow(const float* in, std::int64_t count, F16* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = to_f16(in[i]);
}
void narrow(const float* in, std::int64_t count, BF16* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = to_bf16(in[i]);
}

// ---- memory -------------------------------------------------------------------------------------

// Memory that a thread keeps from call to call: taking it anew would cost as much as small layers do.
template <class T>
T* thread_scratch(std::int64_t elems) noexcept {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  thread_local std::unique_ptr<void, Free> t_memory;
  thread_local std::size_t t_bytes = 0;
  // At least a line: null stands for no memory, and some kernels need none.
  const std::size_t bytes = (static_cast<std::size_t>(elems) * sizeof(T) / 64 + 1) * 64;
  if (bytes > t_bytes) {
    t_memory.reset();
    t_memory.reset(std::aligned_alloc(64, bytes));
    t_bytes = t_memory == nullptr ? 0 : bytes;
  }
  return static_cast<T*>(t_memory.get());
}

std::int64_t round_up(std::int64_t n, std::int64_t to) { return ceil_div(n, to) * to; }

// ---- parts of a batch ---------------------------------------------------------------------------

template <class T>
const Kernel<T>& kernel_of(const Layer& layer) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return *layer.declaration.f32;
  } else {
    return *layer.declaration.f64;
  }
}

// The weights of a job in the type of the arithmetic: where they lie, or converted.
template <class T, class Element>
class ReadWeights {
 public:
  ReadWeights(const Job& job, bool backward) {
    const auto& infos = job.layer->declaration.weights;
    for (std::size_t i = 0; i < infos.size(); ++i) {
      if (!infos[i].trained) {
        all.permutation = static_cast<const std::int64_t*>(job.weights[i]);
        continue;
      }
      all.at[i] = converted(job.weights[i], infos[i].shape.elems());
    }
    bias = job.bias == nullptr ? nullptr : converted(job.bias, job.layer->out);
    const Kernel<T>& kernel = kernel_of<T>(*job.layer);
    if (const std::int64_t elems = kernel.prepared_elems(backward); elems > 0) {
      held_.emplace_back(static_cast<std::size_t>(elems));
      kernel.prepare(all, held_.back().data());
      all.prepared = held_.back().data();
    }
  }

  Weights<T> all;
  const T* bias = nullptr;

 private:
  const T* converted(const void* from, std::int64_t count) {
    if constexpr (std::is_same_v<T, Element>) {
      return static_cast<const T*>(from);
    } else {
      held_.emplace_back(static_cast<std::size_t>(count));
      widen(static_cast<const Element*>(from), count, held_.back().data());
      return held_.back().data();
    }
  }
  std::vector<std::vector<T>> held_;
};

// Some samples of a batch in the kernel's order and type.
template <class T, class Element>
struct Samples {
  Order order;
  std::int64_t features;

  // Whether the batch's own memory serves as it is.
  bool direct() const { return order == Order::Rows && std::is_same_v<T, Element>; }
  // Elements of memory for `room` samples.
  std::int64_t elems(std::int64_t room) const {
    return direct() ? 0 : round_up(features * room, 16) + staging(room);
  }
  // Converted rows on their way to a tile.
  std::int64_t staging(std::int64_t room) const {
    const bool needed = order == Order::Tile && !std::is_same_v<T, Element>;
    return needed ? round_up(features * room, 16) : 0;
  }

  const T* load(const Element* from, std::int64_t count, std::int64_t room, T* memory) const {
    if constexpr (std::is_same_v<T, Element>) {
      if (direct()) return from;
      tile(from, count, room, memory);
    } else if (order == Order::Rows) {
      widen(from, features * count, memory);
    } else {
      T* rows = memory + round_up(features * room, 16);
      widen(from, features * count, rows);
      tile(rows, count, room, memory);
    }
    return memory;
  }
  // Where the kernel should write for store() to take it.
  T* place(Element* to, T* memory) const {
    if constexpr (std::is_same_v<T, Element>) {
      if (direct()) return to;
    }
    return memory;
  }
  void store(T* memory, std::int64_t count, std::int64_t room, Element* to) const {
    if (direct()) return;
    if constexpr (std::is_same_v<T, Element>) {
      loops<T>().transpose(memory, room, features, count, to, features);
    } else if (order == Order::Rows) {
      narrow(memory, features * count, to);
    } else {
      T* rows = memory + round_up(features * room, 16);
      loops<T>().transpose(memory, room, features, count, rows, features);
      narrow(rows, features * count, to);
    }
  }

 private:
  void tile(const T* rows, std::int64_t count, std::int64_t room, T* memory) const {
    loops<T>().transpose(rows, features, count, features, memory, room);
    if (count == room) return;
    for (std::int64_t f = 0; f < features; ++f) {
      std::fill(memory + f * room + count, memory + (f + 1) * room, T{0});
    }
  }
};

template <class T>
void add_bias(const T* bias, Order order, std::int64_t features, std::int64_t count,
              std::int64_t room, T* y) {
  if (order == Order::Tile) {
    for (std::int64_t f = 0; f < features; ++f) {
      for (std::int64_t i = 0; i < count; ++i) y[f * room + i] += bias[f];
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t f = 0; f < features; ++f) y[i * features + f] += bias[f];
  }
}

template <class T>
void sum_bias(const T* gy, Order order, std::int64_t features, std::int64_t count,
              std::int64_t room, T* sums) {
  if (order == Order::Tile) {
    loops<T>().add_row_dots(gy, nullptr, features, room, sums);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t f = 0; f < features; ++f) sums[f] += gy[i * features + f];
  }
}

// Calls body(scratch, part) for every part, with memory of the thread's.
template <class T, class Body>
void for_parts(std::int64_t parts, int threads, std::int64_t scratch_elems, Body&& body) {
  std::atomic<bool> no_memory{false};
  parallel_for(parts, threads, [&](std::int64_t begin, std::int64_t end) {
    T* scratch = thread_scratch<T>(scratch_elems);
    if (scratch == nullptr) {
      no_memory = true;
      return;
    }
    for (std::int64_t part = begin; part < end; ++part) body(scratch, part);
  });
  if (no_memory) throw std::bad_alloc();
}

// How many samples go through at once: few where the batch is small, and all threads should work.
template <class T>
std::int64_t room_of(const Kernel<T>& kernel, std::int64_t samples, bool backward) {
  const std::int64_t half = std::max<std::int64_t>(ceil_div(samples, 2), 1);
  return std::min(kernel.samples(backward), round_up(half, kernel.granule()));
}

// How a forward pass is divided, and the memory of a thread for it.
template <class T, class Element>
struct ForwardPlan {
  const Kernel<T>& kernel;
  Samples<T, Element> in, out;
  std::int64_t room, own, scratch, parts;

  ForwardPlan(const Layer& layer, std::int64_t samples)
      : kernel(kernel_of<T>(layer)),
        in{kernel.order(), layer.in},
        out{kernel.order(), layer.out},
        room(room_of(kernel, samples, false)),
        own(round_up(kernel.forward_scratch(room), 16)),
        scratch(own + in.elems(room) + out.elems(room)),
        parts(ceil_div(samples, room)) {}
};

template <class T, class Element>
void forward(const ForwardJob& job) {
  const Layer& layer = *job.layer;
  const ReadWeights<T, Element> w(job, false);
  const ForwardPlan<T, Element> plan(layer, job.samples);
  const auto& [kernel, in, out, room, own, scratch_elems, parts] = plan;
  const auto* x = static_cast<const Element*>(job.x);
  auto* y = static_cast<Element*>(job.y);
  for_parts<T>(parts, job.threads, scratch_elems, [&](T* scratch, std::int64_t part) {
    const std::int64_t first = part * room;
    const std::int64_t count = std::min(room, job.samples - first);
    const std::int64_t rows = kernel.order() == Order::Tile ? room : count;
    T *in_memory = scratch + own, *out_memory = in_memory + in.elems(room);
    const T* from = in.load(x + first * layer.in, count, rows, in_memory);
    Element* final_place = y + first * layer.out;
    T* to = out.place(final_place, out_memory);
    kernel.forward(w.all, from, to, rows, scratch);
    if (w.bias != nullptr) {
      add_bias(w.bias, kernel.order(), layer.out, count, rows, to);
    }
    out.store(to, count, rows, final_place);
  });
}

// Sums of gradients: for each weight, for what was prepared, for the bias.
template <class T>
struct Sums {
  std::vector<std::int64_t> offsets;
  std::int64_t prepared = 0, bias = 0, elems = 0;

  Sums(const Layer& layer, const Kernel<T>& kernel) {
    for (const WeightInfo& info : layer.declaration.weights) {
      offsets.push_back(elems);
      if (info.trained) elems += round_up(info.shape.elems(), 16);
    }
    prepared = elems;
    elems += round_up(kernel.prepared_gradient_elems(), 16);
    bias = elems;
    elems += round_up(layer.out, 16);
  }
  Gradients<T> at(T* memory) const {
    Gradients<T> all;
    for (std::size_t i = 0; i < offsets.size(); ++i) all.at[i] = memory + offsets[i];
    all.prepared = memory + prepared;
    return all;
  }
};

// As many parts as are worth their memory, at least two; a number that threads do not change.
std::int64_t parts_of(std::int64_t tiles, std::int64_t elems) {
  constexpr std::int64_t kMostElems = std::int64_t{1} << 22, kMostParts = 16;
  return std::min(tiles, std::clamp<std::int64_t>(kMostElems / elems, 2, kMostParts));
}

// The same of a backward pass.
template <class T, class Element>
struct BackwardPlan {
  const Kernel<T>& kernel;
  Samples<T, Element> in, out;
  std::int64_t room, own, scratch, tiles;
  Sums<T> sums;
  std::int64_t parts;

  BackwardPlan(const Layer& layer, std::int64_t samples)
      : kernel(kernel_of<T>(layer)),
        in{kernel.order(), layer.in},
        out{kernel.order(), layer.out},
        room(room_of(kernel, samples, true)),
        own(round_up(kernel.backward_scratch(room), 16)),
        scratch(own + 2 * in.elems(room) + out.elems(room)),
        tiles(ceil_div(samples, room)),
        sums(layer, kernel),
        parts(std::max<std::int64_t>(parts_of(tiles, sums.elems), 1)) {}
};

template <class T, class Element>
void backward(const BackwardJob& job) {
  const Layer& layer = *job.layer;
  const ReadWeights<T, Element> w(job, true);
  const BackwardPlan<T, Element> plan(layer, job.samples);
  const auto& [kernel, in, out, room, own, elems, tiles, sums, parts] = plan;
  std::vector<T> memory(static_cast<std::size_t>(parts * sums.elems));
  const auto* x = static_cast<const Element*>(job.x);
  const auto* gy = static_cast<const Element*>(job.grad_y);
  auto* gx = static_cast<Element*>(job.grad_x);
  for_parts<T>(parts, job.threads, elems, [&](T* scratch, std::int64_t part) {
    T* of_part = memory.data() + part * sums.elems;
    for (std::int64_t tile = part * tiles / parts; tile < (part + 1) * tiles / parts; ++tile) {
      const std::int64_t first = tile * room, count = std::min(room, job.samples - first);
      const std::int64_t rows = kernel.order() == Order::Tile ? room : count;
      T *x_memory = scratch + own, *gx_memory = x_memory + in.elems(room);
      T* gy_memory = gx_memory + in.elems(room);
      const T* xs = in.load(x + first * layer.in, count, rows, x_memory);
      const T* gys = out.load(gy + first * layer.out, count, rows, gy_memory);
      Element* final_place = gx == nullptr ? nullptr : gx + first * layer.in;
      T* gxs = gx == nullptr ? nullptr : in.place(final_place, gx_memory);
      kernel.backward(w.all, sums.at(of_part), xs, gys, gxs, rows, scratch);
      if (job.grad_bias != nullptr) {
        sum_bias(gys, kernel.order(), layer.out, count, rows, of_part + sums.bias);
      }
      if (gx != nullptr) in.store(gxs, count, rows, final_place);
    }
  });
  T* total = memory.data();
  for (std::int64_t part = 1; part < parts; ++part) {
    const T* more = memory.data() + part * sums.elems;
    for (std::int64_t i = 0; i < sums.elems; ++i) total[i] += more[i];
  }
  kernel.finish(w.all, sums.at(total));
  const auto& infos = layer.declaration.weights;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (job.grad_weights[i] == nullptr || !infos[i].trained) continue;
    narrow(total + sums.offsets[i], infos[i].shape.elems(),
           static_cast<Element*>(job.grad_weights[i]));
  }
  if (job.grad_bias != nullptr) {
    narrow(total + sums.bias, layer.out, static_cast<Element*>(job.grad_bias));
  }
}

// Memory of both passes beside the tensors of the caller. A thread keeps its scratch from one to the
// other; weights that were converted or prepared, and sums, go with their pass.
template <class T, class Element>
std::int64_t workspace(const Layer& layer, std::int64_t samples, int threads) {
  const ForwardPlan<T, Element> forth(layer, samples);
  const BackwardPlan<T, Element> back(layer, samples);
  const std::int64_t workers = thread_count(threads);
  const std::int64_t scratch = std::max(std::min(workers, forth.parts) * forth.scratch,
                                        std::min(workers, back.parts) * back.scratch);
  std::int64_t converted = 0;
  if (!std::is_same_v<T, Element>) {
    converted = layer.out;
    for (const WeightInfo& info : layer.declaration.weights) {
      if (info.trained) converted += info.shape.elems();
    }
  }
  const std::int64_t of_pass =
      std::max(forth.kernel.prepared_elems(false),
               back.kernel.prepared_elems(true) + back.parts * back.sums.elems);
  return (scratch + converted + of_pass) * static_cast<std::int64_t>(sizeof(T));
}

}  // namespace

std::int64_t workspace_bytes(const Layer& layer, DType dtype, std::int64_t samples, int threads) {
  if (samples == 0) return 0;
  switch (dtype) {
    case DType::F64: return workspace<double, double>(layer, samples, threads);
    case DType::F16: return workspace<float, F16>(layer, samples, threads);
    case DType::BF16: return workspace<float, BF16>(layer, samples, threads);
    default: return workspace<float, float>(layer, samples, threads);
  }
}

void run_forward(const ForwardJob& job) {
  switch (job.dtype) {
    case DType::F64: return forward<double, double>(job);
    case DType::F16: return forward<float, F16>(job);
    case DType::BF16: return forward<float, BF16>(job);
    default: return forward<float, float>(job);
  }
}

void run_backward(const BackwardJob& job) {
  switch (job.dtype) {
    case DType::F64: return backward<double, double>(job);
    case DType::F16: return backward<float, F16>(job);
    case DType::BF16: return backward<float, BF16>(job);
    default: return backward<float, float>(job);
  }
}

}  // namespace tuckfold::structured
