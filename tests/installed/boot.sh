# Boots systemd on a throw-away copy of this machine, in namespaces of its own: what is written goes into memory, and is gone at the
# end. $1: a folder for the copy; $2: a folder with larder.deb, larder.toml and trial.sh, which gets trial.out.
set -e
# The root of the copy is for all of its users.
umask 022
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount --bind "$2" mnt
ip link set lo up
chroot . dpkg --install /mnt/larder.deb >&2
cat mnt/larder.toml >> etc/larder/larder.toml
cat > etc/systemd/system/trial.service <<'UNIT'
[Unit]
Wants=larder.service
After=larder.service
[Service]
Type=oneshot
WorkingDirectory=/root
ExecStart=/bin/bash /mnt/trial.sh
UNIT
cat > etc/systemd/system/trial.target <<'UNIT'
[Unit]
Requires=basic.target trial.service
After=basic.target
AllowIsolate=yes
UNIT
exec chroot . /usr/bin/env -i container=other PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=trial.target --log-target=null --show-status=0 systemd.unified_cgroup_hierarchy=1
