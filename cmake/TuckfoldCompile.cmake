# How our own sources are compiled. The floating-point flags are part of the format: packed bytes
# are equal everywhere only if no compiler fuses a multiplication with an addition.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
find_program(CCACHE ccache)
if(CCACHE)
  # Paths are hashed relative to the checkout, so that clones share what one of them compiled.
  set(ccache_launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  foreach(language CXX CUDA)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${ccache_launcher})
    endif()
  endforeach()
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
                                           -Wconversion -Wnon-virtual-dtor)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # A false alarm of g++ 12 inside fmt at -O3.
    target_compile_options(${target} PRIVATE -Wno-stringop-overflow)
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
