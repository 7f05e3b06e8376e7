# libtrireme, static and shared, from the folders' objects; the headers, a pkg-config file and a CMake package.

set(objects)
set(libraries Threads::Threads m PkgConfig::YAML PkgConfig::JANSSON PkgConfig::XXHASH PkgConfig::ZLIB
    PkgConfig::SSL PkgConfig::CRYPTO PkgConfig::MICROHTTPD PkgConfig::SQLITE
    ${TRI_IMAGE_LIBRARIES})
foreach(folder ${TRI_FOLDERS})
  list(APPEND objects $<TARGET_OBJECTS:tri_${folder}>)
endforeach()
if(TRI_ONEDNN)
  list(APPEND libraries ${DNNL_LIBRARY})
endif()
if(TRI_OPENMP)
  list(APPEND libraries OpenMP::OpenMP_C)
endif()

add_library(tri_static STATIC ${objects})
set_target_properties(tri_static PROPERTIES OUTPUT_NAME trireme EXPORT_NAME static)
add_library(tri_shared SHARED ${objects})
set_target_properties(tri_shared PROPERTIES OUTPUT_NAME trireme VERSION ${PROJECT_VERSION} SOVERSION 0 EXPORT_NAME shared)
foreach(library tri_static tri_shared)
  target_link_libraries(${library} PRIVATE ${libraries})
  if(TRI_SANITIZE)
    target_link_options(${library} PUBLIC -fsanitize=${TRI_SANITIZE})
  endif()
  target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
endforeach()

set(requires "yaml-0.1 jansson libxxhash zlib libssl libcrypto sqlite3")
# Not among the required: libmicrohttpd's own list leads to GnuTLS and from there to what has no package for linking.
set(private_libraries "-lpthread -lm -lmicrohttpd")
foreach(library JPEG PNG WEBP)
  if(${library}_FOUND)
    list(JOIN ${library}_LDFLAGS " " flags)
    string(APPEND private_libraries " ${flags}")
  endif()
endforeach()
if(TRI_ONEDNN)
  string(APPEND private_libraries " -ldnnl")
endif()
if(TRI_OPENMP)
  string(APPEND private_libraries " ${OpenMP_C_FLAGS}")
endif()
configure_file(${CMAKE_SOURCE_DIR}/cmake/trireme.pc.in ${CMAKE_BINARY_DIR}/trireme.pc @ONLY)

include(CMakePackageConfigHelpers)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/trireme-config.cmake.in ${CMAKE_BINARY_DIR}/trireme-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/trireme-config-version.cmake COMPATIBILITY SameMinorVersion)
install(TARGETS tri_static tri_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/trireme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/trireme-config.cmake ${CMAKE_BINARY_DIR}/trireme-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
