# Installs a finished build under a prefix of its own, then builds and runs the outside project.
#   cmake -D build=DIR -D compiler=CXX -P tests/consumer/run.cmake
set(work ${build}/consumer)
file(REMOVE_RECURSE ${work})
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${build} --prefix ${work}/prefix)
run(${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR} -B ${work}/build
    -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${work}/prefix)
run(${CMAKE_COMMAND} --build ${work}/build)
run(${work}/build/consumer)

# The same in C, by pkg-config, after the folder was moved.
find_program(pkg_config pkg-config)
if(pkg_config)
  file(RENAME ${work}/prefix ${work}/moved)
  file(GLOB_RECURSE pc ${work}/moved/tuckfold_c.pc)
  cmake_path(GET pc PARENT_PATH pc_folder)
  set(ENV{PKG_CONFIG_PATH} ${pc_folder})
  execute_process(COMMAND ${pkg_config} --cflags --libs tuckfold_c OUTPUT_VARIABLE flags
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags)
  cmake_path(GET pc_folder PARENT_PATH lib_folder)
  run(${compiler} -x c ${CMAKE_CURRENT_LIST_DIR}/../../examples/files.c -x none ${flags} -Wl,-rpath,${lib_folder} -o ${work}/consumer_c)
  run(${work}/consumer_c ${work}/example.tuck)
  file(RENAME ${work}/moved ${work}/prefix)
else()
  message("pkg-config is not installed: its files are not tried")
endif()
if(EXISTS ${work}/prefix/bin/tuckfold)
  run(${work}/prefix/bin/tuckfold --version)
endif()
