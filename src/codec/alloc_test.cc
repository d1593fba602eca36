// pack and unpack allocate nothing when they are given their workspace: data loaders call them
// thousands of times a second.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"

namespace {

std::atomic<int> g_allocations{0};

void* allocate(std::size_t bytes, std::size_t align) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  void* pointer = align <= alignof(std::max_align_t)
                      ? std::malloc(bytes == 0 ? 1 : bytes)
                      : std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}

}  // namespace

// For the whole test program; the forms not named here end in these, but for nothrow, which a
// sanitizer has of its own. Inlined, they would look to the compiler like free() of what new gave.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return allocate(bytes, 1); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return allocate(bytes, 1); }
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t align) {
  return allocate(bytes, static_cast<std::size_t>(align));
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, std::align_val_t align) {
  return allocate(bytes, static_cast<std::size_t>(align));
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept { std::free(pointer); }
[[gnu::noinline]] void operator delete[](void* pointer) noexcept { std::free(pointer); }
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }
[[gnu::noinline]] void operator delete[](void* pointer, std::size_t) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::align_val_t) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete[](void* pointer, std::align_val_t) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete[](void* pointer, std::size_t, std::align_val_t) noexcept {
  std::free(pointer);
}

namespace tuckfold {
namespace {

TEST(Allocation, NoneInPackAndUnpackWithAWorkspace) {
  for (const ref::Group& group : ref::groups()) {
    if (!ref::missing(group).empty()) continue;
    for (const CodecSpec& spec : group.specs) {
      for (const DType dtype :
           {DType::F32, DType::F16, DType::U8, DType::I64, DType::U16, DType::Bool}) {
        const Shape shape{3, 72, 64};
        if (!ref::suits(spec, dtype, shape)) continue;
        const ref::Tensor in =
            ref::input_for(spec, dtype, shape, ref::Pattern::Random, ref::Order::ChannelsLast);
        const ref::Tensor out(dtype, shape);
        const Layout fit = layout(spec, dtype, shape);
        const ref::Buffer packed(fit.max_bytes), workspace(fit.workspace_bytes);
        for (const int threads : {1, 3}) {
          const RunOptions options{.threads = threads, .workspace = workspace.span()};
          pack(spec, in.view(), packed.span(), options);  // starts threads, settles the target
          const int before = g_allocations;
          const std::size_t size = pack(spec, in.view(), packed.span(), options);
          unpack(spec, packed.span().first(size), out.view(), options);
          EXPECT_EQ(g_allocations - before, 0) << spec.print() << ' ' << threads;
        }
      }
    }
  }
}

TEST(Allocation, OneWhereAChainIsGivenNoWorkspace) {
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=4) | raw");
  const ref::Tensor in = std::move(ref::Tensor(DType::F32, {64, 64}).fill(ref::Pattern::Random));
  const ref::Buffer packed(layout(spec, in.dtype(), in.shape()).max_bytes);
  const int before = g_allocations;
  pack(spec, in.view(), packed.span(), {.threads = 1});
  EXPECT_EQ(g_allocations - before, 1);
}

}  // namespace
}  // namespace tuckfold
