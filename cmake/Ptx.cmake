# quire_ptx(TARGET NAME SOURCE file.cu [DEPENDS file...])
# Compiles kernels to PTX and adds them to TARGET as C: `const char NAME[]` with a NUL at its end, and
# `const size_t NAME_bytes`. clang comes first: its PTX is of an older version than nvcc's, which only drivers
# as new as that nvcc can read. Without both, NAME is "" and whoever uses it goes without kernels.
option(QUIRE_BUILD_PTX "Compile CUDA kernels to PTX, if clang or nvcc is found" ON)
set(QUIRE_PTX_CLANG_FLAGS -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib
  -Xclang -target-feature -Xclang +ptx64 -fdeclspec -ffp-contract=off -O3 -S -Wno-unknown-cuda-version)
set(QUIRE_PTX_NVCC_FLAGS -ptx -arch=compute_75 -O3 --fmad=false)

if(QUIRE_BUILD_PTX)
  find_program(QUIRE_PTX_CLANG NAMES clang clang-14 clang-15 clang-16 clang-17 clang-18 clang-19)
  find_program(QUIRE_PTX_NVCC NAMES nvcc PATHS /usr/local/cuda/bin)
  if(QUIRE_PTX_CLANG AND NOT DEFINED QUIRE_PTX_CLANG_WORKS) # some are built without the target
    set(probe ${CMAKE_BINARY_DIR}/quire_ptx_probe)
    file(WRITE ${probe}.cu "extern \"C\" __attribute__((global)) void probe(int *p) { *p = 1; }\n")
    execute_process(COMMAND ${QUIRE_PTX_CLANG} ${QUIRE_PTX_CLANG_FLAGS} -o ${probe}.ptx ${probe}.cu
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed)
      set(QUIRE_PTX_CLANG_WORKS OFF CACHE INTERNAL "")
    else()
      set(QUIRE_PTX_CLANG_WORKS ON CACHE INTERNAL "")
    endif()
  endif()
endif()
if(QUIRE_BUILD_PTX AND QUIRE_PTX_CLANG AND QUIRE_PTX_CLANG_WORKS)
  set(QUIRE_PTX_COMMAND ${QUIRE_PTX_CLANG} ${QUIRE_PTX_CLANG_FLAGS} CACHE INTERNAL "")
elseif(QUIRE_BUILD_PTX AND QUIRE_PTX_NVCC)
  set(QUIRE_PTX_COMMAND ${QUIRE_PTX_NVCC} ${QUIRE_PTX_NVCC_FLAGS} CACHE INTERNAL "")
else()
  set(QUIRE_PTX_COMMAND "" CACHE INTERNAL "")
  message(STATUS "no clang with NVPTX and no nvcc: GPU copies use the copy engine alone")
endif()

function(quire_ptx target name)
  cmake_parse_arguments(arg "" "SOURCE" "DEPENDS" ${ARGN})
  get_filename_component(source ${arg_SOURCE} ABSOLUTE)
  set(embed ${PROJECT_SOURCE_DIR}/cmake/embed_ptx.cmake)
  set(ptx ${CMAKE_CURRENT_BINARY_DIR}/${name}.ptx)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${name}.c)
  if(QUIRE_PTX_COMMAND)
    get_filename_component(folder ${source} DIRECTORY)
    file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h ${PROJECT_SOURCE_DIR}/src/tier/device/cuda/*.h
      ${PROJECT_SOURCE_DIR}/src/tier/device/cuda/*.cuh)
    add_custom_command(OUTPUT ${ptx} VERBATIM
      COMMAND ${QUIRE_PTX_COMMAND} -I${PROJECT_SOURCE_DIR}/src -o ${ptx} ${source}
      DEPENDS ${source} ${headers} ${arg_DEPENDS})
    set(made ${ptx})
  endif()
  add_custom_command(OUTPUT ${out} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DNAME=${name} -DPTX=${made} -DOUTPUT=${out} -P ${embed}
    DEPENDS ${made} ${embed})
  target_sources(${target} PRIVATE ${out})
endfunction()
