# LibTorch as pip installed it, for the CPU. find_package(Torch) would ask for the CUDA toolkit that
# the wheel was built with; headers and two libraries are all that is needed. Nothing is downloaded.
#
#   TUCKFOLD_TORCH_PYTHON   the interpreter whose torch is taken
#   Torch::FromPip          headers, libtorch_cpu, libc10, the wheel's C++ ABI, its folder as rpath
#   TorchFromPip_VERSION    "2.11.0"
#   TorchFromPip_REASON     why it was not found
set(TUCKFOLD_TORCH_PYTHON ${CMAKE_CURRENT_SOURCE_DIR}/.venv/bin/python
    CACHE FILEPATH "The Python whose torch is linked")
set(TorchFromPip_PIN 2.11.0) # what is tested
set(TorchFromPip_REASON "")

# Importing torch takes seconds and a working CUDA; its metadata and the library's symbols say enough.
set(script [[
import importlib.metadata, importlib.util, pathlib
spec = importlib.util.find_spec("torch")
if spec and spec.origin:
    print(pathlib.Path(spec.origin).parent.as_posix(), importlib.metadata.version("torch"), sep=";")
]])
# -I leaves the isolation that pip builds in, and sees what is installed.
execute_process(COMMAND ${TUCKFOLD_TORCH_PYTHON} -I -c "${script}" RESULT_VARIABLE status
                OUTPUT_VARIABLE found ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT EXISTS ${TUCKFOLD_TORCH_PYTHON})
  set(TorchFromPip_REASON "no ${TUCKFOLD_TORCH_PYTHON} (TUCKFOLD_TORCH_PYTHON names it)")
elseif(NOT status EQUAL 0)
  set(TorchFromPip_REASON "${TUCKFOLD_TORCH_PYTHON} does not run as Python")
elseif(NOT found)
  set(TorchFromPip_REASON "${TUCKFOLD_TORCH_PYTHON} has no torch (./dev build torch installs it)")
else()
  list(GET found 0 root)
  list(GET found 1 TorchFromPip_VERSION)
  find_path(TorchFromPip_INCLUDE_DIR ATen/ATen.h PATHS ${root}/include NO_DEFAULT_PATH NO_CACHE)
  find_library(TorchFromPip_CPU torch_cpu PATHS ${root}/lib NO_DEFAULT_PATH NO_CACHE)
  find_library(TorchFromPip_C10 c10 PATHS ${root}/lib NO_DEFAULT_PATH NO_CACHE)
  if(NOT (TorchFromPip_INCLUDE_DIR AND TorchFromPip_CPU AND TorchFromPip_C10))
    set(TorchFromPip_REASON "the torch in ${root} has no headers or libraries")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchFromPip REQUIRED_VARS TorchFromPip_INCLUDE_DIR TorchFromPip_CPU
                                  TorchFromPip_C10 VERSION_VAR TorchFromPip_VERSION
                                  REASON_FAILURE_MESSAGE "${TorchFromPip_REASON}")

if(TorchFromPip_FOUND AND NOT TARGET Torch::FromPip)
  if(NOT TorchFromPip_VERSION MATCHES "^${TorchFromPip_PIN}")
    message(WARNING "torch ${TorchFromPip_VERSION} is linked; only ${TorchFromPip_PIN} is tested")
  endif()
  # The type of std::string is in the mangled names: __cxx11 is the new ABI.
  file(STRINGS ${TorchFromPip_C10} new_abi REGEX "NSt7__cxx1112basic_string" LIMIT_COUNT 1)
  if(new_abi)
    set(abi 1)
  else()
    set(abi 0)
  endif()
  add_library(Torch::C10 SHARED IMPORTED)
  set_target_properties(Torch::C10 PROPERTIES IMPORTED_LOCATION ${TorchFromPip_C10})
  add_library(Torch::FromPip SHARED IMPORTED)
  set_target_properties(
    Torch::FromPip
    PROPERTIES IMPORTED_LOCATION ${TorchFromPip_CPU}
               INTERFACE_INCLUDE_DIRECTORIES # of an imported target, so system headers
               "${TorchFromPip_INCLUDE_DIR};${TorchFromPip_INCLUDE_DIR}/torch/csrc/api/include"
               INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=${abi}
               INTERFACE_LINK_LIBRARIES Torch::C10
               # The wheel's libraries find each other, and those of CUDA, by paths of their own.
               INTERFACE_LINK_OPTIONS -Wl,--allow-shlib-undefined)
endif()
