# How our own sources are compiled. The floating-point flags are part of the format: packed bytes
# are equal everywhere only if no compiler fuses a multiplication with an addition.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(TUCKFOLD_SANITIZE)
  add_compile_options(-fsanitize=${TUCKFOLD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TUCKFOLD_SANITIZE})
endif()

function(tuckfold_compile target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE -ffp-contract=off -Wall -Wextra -Wpedantic -Wshadow
                                           -Wconversion -Wnon-virtual-dtor
                                           -Wno-missing-field-initializers) # defaults are meant
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms of g++ 12 inside fmt and std::string at -O3.
    target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-restrict)
  endif()
  # Tables name the fields that matter and leave the rest at their defaults; clang counts changes of
  # sign as conversions, g++ does not; g++ 12 reports overlaps inside its own std::string (its bug
  # 105651), and clang what its stable_sort calls deprecated.
  target_compile_options(${target} PRIVATE -Wno-missing-field-initializers -Wno-sign-conversion
                                           $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                                           $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
  if(TUCKFOLD_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
