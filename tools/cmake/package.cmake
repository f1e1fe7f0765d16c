# Debian packages (tools/package): glydd with programs and units, libglyd-dev with the client library.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "The glydd authors")
set(CPACK_PACKAGE_CONTACT "The glydd authors <glydd@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL programs system devel)
set(CPACK_COMPONENT_PROGRAMS_GROUP glydd)
set(CPACK_COMPONENT_SYSTEM_GROUP glydd)
set(CPACK_COMPONENT_DEVEL_GROUP dev)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_GLYDD_PACKAGE_NAME glydd)
set(CPACK_DEBIAN_GLYDD_DESCRIPTION "daemon that serves packed language models from one copy in memory
Keeps bf16 models, packed without loss, in memory that it owns, and lends them
to any process of the host. With the command line glyd, which packs, verifies
and unpacks models.")
set(CPACK_DEBIAN_GLYDD_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_GLYDD_PACKAGE_RECOMMENDS "systemd")
set(CPACK_DEBIAN_GLYDD_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(control ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_GLYDD_PACKAGE_CONTROL_EXTRA
  ${control}/postinst ${control}/prerm ${control}/postrm ${control}/conffiles)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libglyd-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_DESCRIPTION "client library of glydd, for C++
Maps models that glydd holds and multiplies with their packed weights.")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "glydd (= ${PROJECT_VERSION}), libgrpc++-dev, libprotobuf-dev, protobuf-compiler-grpc, libabsl-dev, libssl-dev, zlib1g-dev, libc-ares-dev, libre2-dev")
include(CPack)
