// Threads with small stacks, as language runtimes and servers start them by the thousand.
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>
#include <stdexcept>
#include <system_error>

#include "codec/contract_fixture.h"

namespace tuckfold {
namespace {

// Sanitizers put guards about every variable, and unoptimized code keeps each of them apart.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr std::size_t kStackBytes = 1 << 20;
#else
constexpr std::size_t kStackBytes = 128 << 10;
#endif

// Runs the work on a thread of its own; a stack that does not suffice ends the program.
void run_on_small_stack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread;
  const auto body = [](void* of) -> void* {
    (*static_cast<const std::function<void()>*>(of))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, const_cast<std::function<void()>*>(&work)),
            0);
  pthread_attr_destroy(&attributes);
  pthread_join(thread, nullptr);
}

// Rows wider than what is worked on at a time, and strides, take buffers of their own.
TEST(Stack, EveryCodecRunsOn128Kilobytes) {
  for (const ref::Group& group : ref::groups()) {
    if (!ref::missing(group).empty()) continue;
    for (const CodecSpec& spec : group.specs) {
      for (const DType dtype : {DType::F32, DType::F16, DType::F64, DType::U8, DType::I64}) {
        for (const auto& [shape, order] : {std::pair(Shape{3, 72, 64}, ref::Order::ChannelsLast),
                                           std::pair(Shape{16, 2112}, ref::Order::RowMajor)}) {
          if (!ref::suits(spec, dtype, shape)) continue;
          const ref::Tensor in = ref::input_for(spec, dtype, shape, ref::Pattern::Ramp, order);
          const ref::Tensor out(dtype, shape, order);
          SCOPED_TRACE(spec.print());
          run_on_small_stack([&] {
            std::vector<std::byte> packed(layout(spec, dtype, shape).max_bytes);
            packed.resize(pack(spec, in.view(), packed, {.threads = 1}));
            unpack(spec, packed, out.view(), {.threads = 1});
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace tuckfold
