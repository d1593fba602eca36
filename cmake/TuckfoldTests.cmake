# One test program from every *_test.cc beside its subject, and the tests that run other programs.
# ctest labels: fast, slow, gpu.
find_package(GTest REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
include(GoogleTest)

file(GLOB test_sources CONFIGURE_DEPENDS src/*/*_test.cc)
file(GLOB cuda_test_sources CONFIGURE_DEPENDS src/*/*_cuda_test.cc)
list(REMOVE_ITEM test_sources ${cuda_test_sources})
if(NOT TARGET tuckfold_cli_objects)
  list(FILTER test_sources EXCLUDE REGEX "/src/cli/")
endif()
add_executable(tuckfold_tests ${test_sources})
tuckfold_compile(tuckfold_tests)
target_link_libraries(tuckfold_tests PRIVATE tuckfold_inputs tuckfold_objects tuckfold_cuda $<TARGET_NAME_IF_EXISTS:tuckfold_cli_objects>
                                             GTest::gtest_main)
target_compile_definitions(tuckfold_tests PRIVATE TUCKFOLD_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
gtest_discover_tests(tuckfold_tests DISCOVERY_MODE PRE_TEST PROPERTIES LABELS fast)

# What happens where the system refuses: a library that stands before libc and fails on purpose.
add_library(tuckfold_faults SHARED tests/faults/faults.cc)
tuckfold_compile(tuckfold_faults)
set_target_properties(tuckfold_faults PROPERTIES CXX_VISIBILITY_PRESET default)
target_link_libraries(tuckfold_faults PRIVATE ${CMAKE_DL_LIBS})
file(GLOB fault_test_sources CONFIGURE_DEPENDS tests/faults/*_test.cc)
add_executable(tuckfold_fault_tests ${fault_test_sources})
tuckfold_compile(tuckfold_fault_tests)
target_link_libraries(tuckfold_fault_tests PRIVATE tuckfold_faults tuckfold_objects tuckfold_cuda
                                                   GTest::gtest_main)
gtest_discover_tests(tuckfold_fault_tests DISCOVERY_MODE PRE_TEST PROPERTIES LABELS fast)

# The tests of kernels: on a GPU, and where there is none the same kernels compiled as C++ and run by
# an emulator, a fiber for each thread.
function(tuckfold_cuda_tests name label)
  add_executable(${name} ${cuda_test_sources})
  tuckfold_compile(${name})
  target_link_libraries(${name} PRIVATE tuckfold_objects ${ARGN} GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX ${label}. PROPERTIES LABELS ${label})
endfunction()
add_library(tuckfold_emulated_cuda OBJECT tests/cuda/emulated.cc)
tuckfold_compile(tuckfold_emulated_cuda)
target_compile_options(tuckfold_emulated_cuda PRIVATE -Wno-unknown-pragmas) # those of nvcc
target_include_directories(tuckfold_emulated_cuda PUBLIC include src)
target_link_libraries(tuckfold_emulated_cuda PUBLIC fmt::fmt)
tuckfold_cuda_tests(tuckfold_emulated_cuda_tests fast tuckfold_emulated_cuda)
if(CMAKE_CUDA_COMPILER)
  tuckfold_cuda_tests(tuckfold_cuda_tests gpu tuckfold_cuda)
  # Copied to a machine with a GPU, it finds beside it what that lacks.
  set_target_properties(tuckfold_cuda_tests PROPERTIES BUILD_RPATH $ORIGIN)
endif()

function(tuckfold_test name)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS fast)
endfunction()

tuckfold_test(layers ${Python3_EXECUTABLE} tools/check_layers.py)

if(TARGET tuckfold_cli AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/tests/cli/run.py)
  tuckfold_test(cli ${Python3_EXECUTABLE} tests/cli/run.py $<TARGET_FILE:tuckfold_cli>)
endif()

# The C API by a C compiler, as strict as it goes, and nothing else exported.
enable_language(C)
add_executable(tuckfold_example_c examples/pack.c)
set_target_properties(tuckfold_example_c PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON
                                                    C_EXTENSIONS OFF)
target_compile_options(tuckfold_example_c PRIVATE -Wall -Wextra -Wpedantic -Werror)
target_link_libraries(tuckfold_example_c PRIVATE tuckfold_c)
tuckfold_test(example_c $<TARGET_FILE:tuckfold_example_c>)
tuckfold_test(exports_c ${Python3_EXECUTABLE} tools/check_exports.py $<TARGET_FILE:tuckfold_c>
              --header include/tuckfold/tuckfold.h)

# The one file of the tests that includes all of a tensor: torch's headers take a while.
if(TARGET Torch::FromPip)
  add_executable(tuckfold_example_torch examples/pack_tensor.cc)
  tuckfold_compile(tuckfold_example_torch)
  target_link_libraries(tuckfold_example_torch PRIVATE tuckfold Torch::FromPip)
  tuckfold_test(example_torch $<TARGET_FILE:tuckfold_example_torch>)
endif()

# An outside project would have to be built with the same sanitizer; it tests the installation only.
if(NOT TUCKFOLD_SANITIZE)
  tuckfold_test(consumer ${CMAKE_COMMAND} -D build=${CMAKE_CURRENT_BINARY_DIR}
                -D compiler=${CMAKE_CXX_COMPILER} -P tests/consumer/run.cmake)
endif()
