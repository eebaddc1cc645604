# git under the rig: transaction i is a commit with the message i, and counts as durable when `git commit` has returned.
# Whoever reads this in sets $options, for example -c core.fsync=all.
export GIT_AUTHOR_NAME=rig GIT_AUTHOR_EMAIL=rig GIT_COMMITTER_NAME=rig GIT_COMMITTER_EMAIL=rig

run() {
    # The commits are empty and there are no hooks, because the disk under test has room for 256 files only.
    git init --quiet --initial-branch=main --template= . || exit 1
    i=${2:-0}
    while [ $i -lt "$1" ]; do
        i=$((i + 1))
        # Without maintenance, which has nothing to do here, a commit starts no more programs.
        git $options -c maintenance.auto=false commit --quiet --allow-empty --message=$i || exit 1
        echo "ack $i"
        read -r ok && [ "$ok" = ok ] || exit 1
    done
}

recover() {
    # There is no branch before the first commit.
    [ -e .git/refs/heads/main ] || exit 0
    # Objects of a commit that was not finished do not matter, so read only what the branch leads to.
    git log --format='have %s' main
}

case $1 in
run) run "$5" "$7" ;;
recover) recover ;;
*) exit 2 ;;
esac
