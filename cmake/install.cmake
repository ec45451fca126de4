# What `cmake --install` puts where: both libraries, the header, the program, the manual, and two ways for another build
# to find them, pkg-config and find_package(skipdecode). Both are relocatable: they find the prefix from where they lie.

install(TARGETS skipdecode_shared EXPORT skipdecode LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS skipdecode_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/skipdecode DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(TARGET skipdecode)
  install(TARGETS skipdecode RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES docs/skipdecode.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

# pkg-config: ${pcfiledir} is <prefix>/<libdir>/pkgconfig.
set(SD_PC_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH SD_PC_TO_PREFIX ${CMAKE_INSTALL_PREFIX}/${SD_PC_DIR} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" SD_PC_TO_PREFIX ${SD_PC_TO_PREFIX})
configure_file(cmake/skipdecode.pc.in skipdecode.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/skipdecode.pc DESTINATION ${SD_PC_DIR})

include(CMakePackageConfigHelpers)
set(SD_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/skipdecode)
install(EXPORT skipdecode NAMESPACE skipdecode:: FILE skipdecodeConfig.cmake DESTINATION ${SD_CMAKE_DIR})
write_basic_package_version_file(skipdecodeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/skipdecodeConfigVersion.cmake DESTINATION ${SD_CMAKE_DIR})
