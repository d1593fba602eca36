# tuckfold_cuda: the kernels by nvcc, or no_cuda.cc. Machine code for each architecture, and of the
# last one PTX for what comes later. The runtime is linked in: users need the driver alone.
if(CMAKE_CUDA_COMPILER_LOADED)
  file(GLOB cuda_sources CONFIGURE_DEPENDS src/base/cuda/*.cu src/codec/*/*.cu
       src/structured/*/*.cu)
  add_library(tuckfold_cuda OBJECT ${cuda_sources})
  set_target_properties(tuckfold_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static
                                                 CUDA_VISIBILITY_PRESET hidden)
  # No fused multiply-adds but those that are written: packed bytes must be the CPU's.
  # The host's compiler does not know `#pragma unroll`; defaults of fields are meant.
  target_compile_options(tuckfold_cuda PRIVATE -std=c++20 -fmad=false --expt-relaxed-constexpr --compress-mode=size
                                               -Xcompiler=-ffp-contract=off,-Wall,-Wextra
                                               -Xcompiler=-Wno-unknown-pragmas,-Wno-missing-field-initializers)
  if(TUCKFOLD_WERROR)
    target_compile_options(tuckfold_cuda PRIVATE --Werror=all-warnings -Xcompiler=-Werror)
  endif()
  find_package(CUDAToolkit REQUIRED)
  target_link_libraries(tuckfold_cuda PUBLIC CUDA::cudart_static)
else()
  add_library(tuckfold_cuda OBJECT src/base/cuda/no_cuda.cc)
  tuckfold_compile(tuckfold_cuda)
endif()
set_target_properties(tuckfold_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(tuckfold_cuda PUBLIC include src)
target_link_libraries(tuckfold_cuda PUBLIC fmt::fmt)
set_target_properties(tuckfold_cuda PROPERTIES TUCKFOLD_USES cuda) # as a module
