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
if(EXISTS ${work}/prefix/bin/tuckfold)
  run(${work}/prefix/bin/tuckfold --version)
endif()
