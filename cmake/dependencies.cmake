# One dep::NAME target for each library we use, whatever way it is packaged.

find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(pugixml REQUIRED)
find_package(spdlog REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(CLI11 CONFIG QUIET)
find_package(nlohmann_json CONFIG QUIET)
find_package(tomlplusplus CONFIG QUIET)
find_package(httplib CONFIG QUIET)
find_package(hwy CONFIG REQUIRED)

function(dependency name)
  add_library(dep_${name} INTERFACE)
  add_library(dep::${name} ALIAS dep_${name})
  target_link_libraries(dep_${name} INTERFACE ${ARGN})
endfunction()

# A package without CMake files: headers (and perhaps a library) in the system's folders.
function(system_dependency name header)
  find_path(${name}_INCLUDE ${header})
  if(NOT ${name}_INCLUDE)
    message(FATAL_ERROR "${header} not found: install the development package of ${name}")
  endif()
  dependency(${name} ${ARGN})
  target_include_directories(dep_${name} SYSTEM INTERFACE ${${name}_INCLUDE})
endfunction()

dependency(openssl OpenSSL::Crypto OpenSSL::SSL)
dependency(pugixml pugixml::pugixml)
dependency(spdlog spdlog::spdlog Threads::Threads)
dependency(prometheus prometheus-cpp::core)
dependency(highway hwy::hwy)
find_library(ZSTD_LIBRARY zstd REQUIRED)
find_library(LZ4_LIBRARY lz4 REQUIRED)
system_dependency(zstd zstd.h ${ZSTD_LIBRARY})
system_dependency(lz4 lz4.h ${LZ4_LIBRARY})
system_dependency(xxhash xxhash.h)

if(TARGET nlohmann_json::nlohmann_json)
  dependency(json nlohmann_json::nlohmann_json)
else()
  system_dependency(json nlohmann/json.hpp)
endif()
if(TARGET CLI11::CLI11)
  dependency(cli CLI11::CLI11)
else()
  system_dependency(cli CLI/CLI.hpp)
endif()
if(TARGET tomlplusplus::tomlplusplus)
  dependency(toml tomlplusplus::tomlplusplus)
else()
  system_dependency(toml toml++/toml.h)
endif()
if(TARGET httplib::httplib)
  dependency(httplib httplib::httplib)
else()
  # Debian's is a compiled library; elsewhere it is a header alone.
  find_library(HTTPLIB_LIBRARY cpp-httplib)
  if(HTTPLIB_LIBRARY)
    system_dependency(httplib httplib.h ${HTTPLIB_LIBRARY} dep::openssl Threads::Threads)
  else()
    system_dependency(httplib httplib.h dep::openssl Threads::Threads)
  endif()
endif()
target_compile_definitions(dep_httplib INTERFACE CPPHTTPLIB_OPENSSL_SUPPORT)

# libtorch: torch_cpu and c10 alone are linked, so that one binary serves CPU and CUDA; --device cuda loads torch_cuda
# at start. The old dtags make the rpath serve torch's own dependencies too.
if(NOT TORCH_ROOT)
  foreach(prefix ${CMAKE_PREFIX_PATH})
    if(EXISTS ${prefix}/include/ATen/ATen.h)
      set(TORCH_ROOT ${prefix})
    endif()
  endforeach()
endif()
if(NOT EXISTS ${TORCH_ROOT}/include/ATen/ATen.h)
  message(FATAL_ERROR "No libtorch at TORCH_ROOT='${TORCH_ROOT}'. Run 'make build', which installs one, or give "
                      "-DTORCH_ROOT=<directory with include/ and lib/>")
endif()
dependency(torch ${TORCH_ROOT}/lib/libtorch_cpu.so ${TORCH_ROOT}/lib/libc10.so ${CMAKE_DL_LIBS})
target_include_directories(dep_torch SYSTEM INTERFACE ${TORCH_ROOT}/include ${TORCH_ROOT}/include/torch/csrc/api/include)
# ATen's parallel loop is a template: without OpenMP here it would not reach ATen's threads, which are to flush denormals
# (core/model/device.cpp). The runtime must be the one
# that libtorch loads, whatever its file is called, or there would be two pools of threads.
file(GLOB torch_openmp ${TORCH_ROOT}/lib/libgomp*.so*)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(dep_torch INTERFACE -fopenmp)
  target_link_libraries(dep_torch INTERFACE ${torch_openmp})
  if(NOT torch_openmp)
    target_link_options(dep_torch INTERFACE -fopenmp)
  endif()
endif()
# The wheel keeps the few CUDA libraries that torch_cpu itself loads beside the torch folder.
cmake_path(GET TORCH_ROOT PARENT_PATH site_packages)
target_link_options(dep_torch INTERFACE -Wl,--disable-new-dtags -Wl,-rpath,${TORCH_ROOT}/lib
                    -Wl,-rpath,${site_packages}/nvidia/cu13/lib -Wl,--allow-shlib-undefined)

# The Rust parts (tokenizer and chat templates, the remote tier's clients): one static library with a C ABI.
find_program(CARGO cargo REQUIRED)
set(rust_source ${PROJECT_SOURCE_DIR}/core)
# One target folder for all build trees: sanitizer builds use the same library.
set(PROMPTCACHED_CARGO_DIR ${PROJECT_SOURCE_DIR}/build/cargo CACHE PATH "Where cargo builds")
set(rust_library ${PROMPTCACHED_CARGO_DIR}/release/libpromptcached_rust.a)
file(GLOB_RECURSE rust_files CONFIGURE_DEPENDS ${rust_source}/*.rs ${rust_source}/Cargo.toml ${rust_source}/Cargo.lock)
list(FILTER rust_files EXCLUDE REGEX "/core/target/")
add_custom_command(
  OUTPUT ${rust_library}
  COMMAND ${CARGO} build --release --locked --quiet --package promptcached_rust
          --manifest-path ${rust_source}/Cargo.toml --target-dir ${PROMPTCACHED_CARGO_DIR}
  DEPENDS ${rust_files}
  COMMENT "Building the Rust library"
  USES_TERMINAL)
add_custom_target(rust_build DEPENDS ${rust_library})
dependency(rust ${rust_library} ${CMAKE_DL_LIBS} Threads::Threads m)
# Most of the library is not for any one program.
target_link_options(dep_rust INTERFACE -Wl,--gc-sections)
add_dependencies(dep_rust rust_build)
