# A module is a folder of src/: an object library tuckfold_NAME, and the test program
# tuckfold_NAME_tests. Both see the modules that it uses and no others, so that linking holds the
# layers as tools/check_layers.py holds the includes.
#
#   tuckfold_module(container USES codec)          src/container, all .cc but tests
#   tuckfold_use(tuckfold_cli cli inputs)          links a program with modules and what they use
#
# A build without CUDA, or without a library of inputs, takes no_NAME.cc instead of what is missing;
# EXCLUDE names such files by a regular expression.
function(tuckfold_module name)
  cmake_parse_arguments(PARSE_ARGV 1 module "" "EXCLUDE" "USES;LIBRARIES;PRECOMPILE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$|/main\\.cc$")
  if(module_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${module_EXCLUDE}")
  endif()
  add_library(tuckfold_${name} OBJECT ${sources})
  tuckfold_compile(tuckfold_${name})
  set_target_properties(tuckfold_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(tuckfold_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(tuckfold_${name} PUBLIC ${module_LIBRARIES})
  if(TUCKFOLD_PRECOMPILE)
    # g++ 12 then forgets that std::string is the system's, and reports what it does inside.
    target_compile_options(tuckfold_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>)
    target_precompile_headers(tuckfold_${name} PRIVATE <algorithm> <filesystem> <functional> <memory> <optional>
                              <span> <string> <vector> <fmt/format.h> ${module_PRECOMPILE})
  endif()
  set(uses ${name})
  foreach(used IN LISTS module_USES)
    target_link_libraries(tuckfold_${name} PUBLIC tuckfold_${used})
    get_target_property(below tuckfold_${used} TUCKFOLD_USES)
    list(APPEND uses ${below})
  endforeach()
  list(REMOVE_DUPLICATES uses)
  set_target_properties(tuckfold_${name} PROPERTIES TUCKFOLD_USES "${uses}")
endfunction()

# CMake links the objects of libraries that are named, not of those that they use.
function(tuckfold_use target)
  set(all "")
  foreach(name IN LISTS ARGN)
    get_target_property(uses tuckfold_${name} TUCKFOLD_USES)
    list(APPEND all ${uses})
  endforeach()
  list(REMOVE_DUPLICATES all)
  list(TRANSFORM all PREPEND tuckfold_)
  target_link_libraries(${target} PRIVATE "$<BUILD_INTERFACE:${all}>")
endfunction()
