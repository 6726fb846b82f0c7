# shellcheck shell=bash disable=SC2034  # what it sets is read by up
# The base image: built once by debootstrap, kept as an archive, loaded into the stores of root and of the user.

IMAGE=localhost/assize-base:bookworm
IMAGE_PACKAGES=python3,gcc,libc6-dev,make,perl,git
ARCHIVE=$CACHE/assize-base-bookworm.tar

# image_id [as_user]: empty where that store has no such image.
image_id() {
    "$@" podman image inspect --format '{{.Id}}' "$IMAGE" || true
}

# The mirror that apt uses: the one that this machine is known to reach.
debian_mirror() {
    local uri
    # shellcheck disable=SC2016  # apt expands it
    uri=$(apt-get indextargets --format '$(REPO_URI)' \
        'Identifier: Packages' 'Component: main' 'Codename: bookworm' 'Origin: Debian' | head -n 1)
    uri=${uri%/}
    # The images of some clouds name a file of mirrors instead.
    [[ $uri != mirror+file:* ]] || uri=$(grep -o -m 1 '^http[^[:space:]]*' "${uri#mirror+file:}")
    echo "$uri"
}

build_image() {
    local root=$CACHE/build mirror
    mirror=$(debian_mirror)
    [[ $mirror ]] || { apt-get update && mirror=$(debian_mirror); }
    [[ $mirror ]] || fail "apt knows no mirror of Debian bookworm"
    rm -rf --one-file-system "$root"
    # In a mount namespace of its own, so that no /proc stays mounted in there whatever happens.
    unshare --mount debootstrap --variant=minbase --include="$IMAGE_PACKAGES" --force-check-gpg \
        --keyring=/usr/share/keyrings/debian-archive-keyring.gpg bookworm "$root" "$mirror"
    trim_image "$root"
    # Sorted, and no file newer than the release that it came from: the layer does not depend on when it was made.
    tar --directory="$root" --create --sort=name --numeric-owner --clamp-mtime \
        --mtime="$(sed -n 's/^Date: //p' "$CACHE/Release")" . |
        podman import --change 'CMD ["bash"]' --change 'ENV LANG=C.UTF-8' - "$IMAGE"
    rm -rf --one-file-system "$root"
}

trim_image() {
    cp "$1"/var/lib/apt/lists/*_Release "$CACHE/Release"
    (
        cd "$1" || exit
        rm -rf var/cache/apt/* var/cache/debconf/* var/cache/ldconfig/* var/lib/apt/lists/* var/log/* var/tmp/* tmp/* \
            usr/share/doc/* usr/share/man/* usr/share/info/* usr/share/locale/* \
            etc/machine-id etc/hostname etc/resolv.conf
        # Debian's Python refuses pip beside apt; in an image that is thrown away there is nothing to protect.
        rm -f usr/lib/python3*/EXTERNALLY-MANAGED
    )
}

save_image() {
    [[ $(image_id) ]] || build_image
    # OCI, unlike podman's default format, keeps the image's id through save and load.
    rm -f "$ARCHIVE.part"
    podman save --format oci-archive --uncompressed --output "$ARCHIVE.part" "$IMAGE"
    mv "$ARCHIVE.part" "$ARCHIVE"
    changed
}

ensure_image() {
    [[ -s $ARCHIVE ]] || save_image
    [[ $(image_id) ]] || { podman load --input "$ARCHIVE" && changed; }
    [[ $(image_id as_user) == "$(image_id)" ]] || { as_user podman load --input "$ARCHIVE" && changed; }
    detail="$IMAGE $(image_id | cut -c 1-12)"
}
