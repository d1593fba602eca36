# A test program for every module, from the *_test.cc beside what they test, another from its
# *_threads_test.cc, and the tests that run other programs. ctest labels: fast, slow, gpu. A label is
# found by a part of its name, so fast-threads is fast, and ThreadSanitizer's tests are `-L threads`;
# gtest_discover_tests keeps one label alone.
find_package(GTest REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
include(GoogleTest)
add_custom_target(tuckfold_tests)
add_custom_target(tuckfold_threads_tests)  # those that ThreadSanitizer runs

# tuckfold_test_program(name LABELS fast SOURCES a_test.cc USES codec)
function(tuckfold_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "PREFIX;LABELS" "SOURCES;USES")
  add_executable(${name} ${test_SOURCES})
  tuckfold_compile(${name})
  tuckfold_use(${name} ${test_USES})
  target_link_libraries(${name} PRIVATE GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE TUCKFOLD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${test_PREFIX}"
                       PROPERTIES LABELS "${test_LABELS}")
  add_dependencies(tuckfold_tests ${name})
endfunction()

foreach(module base codec structured container portable planner inputs capi cli)
  if(NOT TARGET tuckfold_${module})
    continue()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/${module}/*_test.cc)
  set(threads_sources ${sources})
  list(FILTER sources EXCLUDE REGEX "_(cuda|threads)_test\\.cc$")
  list(FILTER threads_sources INCLUDE REGEX "_threads_test\\.cc$")
  # All kernels are one library, so the tests of a module that has some link the codecs' as well.
  if(module STREQUAL structured)
    set(uses structured codec)
  else()
    set(uses ${module})
  endif()
  tuckfold_test_program(tuckfold_${module}_tests LABELS fast SOURCES ${sources} USES ${uses})
  if(threads_sources)
    tuckfold_test_program(tuckfold_${module}_threads_tests LABELS fast-threads
                          SOURCES ${threads_sources} USES ${module})
    add_dependencies(tuckfold_threads_tests tuckfold_${module}_threads_tests)
  endif()
endforeach()

# Tests of failing system calls: a library that is loaded before libc makes them fail on purpose.
add_library(tuckfold_faults SHARED tests/faults/faults.cc)
tuckfold_compile(tuckfold_faults)
set_target_properties(tuckfold_faults PROPERTIES CXX_VISIBILITY_PRESET default)
target_link_libraries(tuckfold_faults PRIVATE ${CMAKE_DL_LIBS})
file(GLOB fault_test_sources CONFIGURE_DEPENDS tests/faults/*_test.cc)
tuckfold_test_program(tuckfold_fault_tests LABELS fast SOURCES ${fault_test_sources} USES container)
target_link_libraries(tuckfold_fault_tests PRIVATE tuckfold_faults)

# The tests of kernels: on a GPU, and on any machine the same kernels compiled as C++ and run by an
# emulator. tests/cuda has the emulated ones.
file(GLOB_RECURSE cuda_test_sources CONFIGURE_DEPENDS src/*_cuda_test.cc)
add_subdirectory(tests/cuda)
if(CMAKE_CUDA_COMPILER_LOADED)
  tuckfold_test_program(tuckfold_cuda_tests PREFIX gpu. LABELS gpu SOURCES ${cuda_test_sources} USES capi)
  # Copied to a machine with a GPU, it finds beside it what that lacks.
  set_target_properties(tuckfold_cuda_tests PROPERTIES BUILD_RPATH $ORIGIN)
endif()

function(tuckfold_test name)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS fast)
endfunction()

tuckfold_test(layers ${Python3_EXECUTABLE} tools/check_layers.py)

if(TARGET tuckfold_tool AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/tests/cli/run.py)
  tuckfold_test(cli ${Python3_EXECUTABLE} tests/cli/run.py $<TARGET_FILE:tuckfold_tool>)
endif()

# The C API by a C compiler, as strict as it goes, and nothing else exported.
enable_language(C)
foreach(example pack files)
  add_executable(tuckfold_example_c_${example} examples/${example}.c)
  set_target_properties(tuckfold_example_c_${example} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON
                                                                 C_EXTENSIONS OFF)
  target_compile_options(tuckfold_example_c_${example} PRIVATE -Wall -Wextra -Wpedantic -Werror)
  target_link_libraries(tuckfold_example_c_${example} PRIVATE tuckfold_c)
endforeach()
tuckfold_test(example_c $<TARGET_FILE:tuckfold_example_c_pack>)
tuckfold_test(example_c_files $<TARGET_FILE:tuckfold_example_c_files> ${CMAKE_BINARY_DIR}/example.tuck)
tuckfold_test(exports_c ${Python3_EXECUTABLE} tools/check_exports.py $<TARGET_FILE:tuckfold_c>
              --header include/tuckfold/c.h)

add_executable(tuckfold_example_cc examples/pack.cc)
tuckfold_compile(tuckfold_example_cc)
target_link_libraries(tuckfold_example_cc PRIVATE tuckfold)
tuckfold_test(example_cc $<TARGET_FILE:tuckfold_example_cc>)

# The only files of the tests that include all of a tensor: torch's headers take a while.
if(TARGET Torch::FromPip)
  foreach(name IN ITEMS pack_tensor train)
    add_executable(tuckfold_example_${name} examples/${name}.cc)
    tuckfold_compile(tuckfold_example_${name})
    target_link_libraries(tuckfold_example_${name} PRIVATE tuckfold Torch::FromPip)
    tuckfold_test(example_${name} $<TARGET_FILE:tuckfold_example_${name}>)
  endforeach()
endif()

# An outside project would have to be built with the same sanitizer; it tests the installation only.
if(NOT TUCKFOLD_SANITIZE)
  tuckfold_test(consumer ${CMAKE_COMMAND} -D build=${CMAKE_CURRENT_BINARY_DIR}
                -D compiler=${CMAKE_CXX_COMPILER} -P tests/consumer/run.cmake)
endif()
