# Compiler cache, linker, warnings and sanitizers: what every target of ours is built with.

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

find_program(MOLD mold)
if(MOLD)
  # gcc 12 and clang both know the name; linking against libtorch is several times faster with it.
  add_link_options(-fuse-ld=mold)
endif()

add_library(house_flags INTERFACE)
target_compile_options(house_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  # False alarms of older gccs on std::string at -O2 and above (gcc bug 105651).
  target_compile_options(house_flags INTERFACE -Wno-restrict)
endif()
target_include_directories(house_flags INTERFACE ${PROJECT_SOURCE_DIR})

if(PROMPTCACHED_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -O1 -g)
  add_link_options(-fsanitize=address,undefined)
elseif(PROMPTCACHED_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -O1 -g)
  add_link_options(-fsanitize=thread)
elseif(PROMPTCACHED_SANITIZE)
  message(FATAL_ERROR "PROMPTCACHED_SANITIZE is '${PROMPTCACHED_SANITIZE}'; it knows 'address' and 'thread'")
endif()

if(PROMPTCACHED_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "PROMPTCACHED_FUZZ needs clang: -DCMAKE_CXX_COMPILER=clang++")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -O1 -g)
endif()
