const looks = 50
const pauseSec = 0.1

/**
 * A script that tries a command again for some five seconds, until it succeeds. It ends as the last try, with what that said as
 * its error. A look from outside costs the start of two processes.
 */
export const soon = (command: string): string => `
look() {
${command}
}
n=0
until said=$(look 2>&1); do
  n=$((n + 1))
  [ $n -lt ${looks} ] && sleep ${pauseSec} || { echo "$said" >&2; exit 1; }
done`
