import { batch, type Link, type Links, type Route, runIn, setRules } from './commands.ts'

// A member may have a link of the engine, for published ports. Answers to its connections leave by that link; new
// connections do not, because members go out through their NICs or not at all.

const table = 4710
const rules = ({ ifname }: Link): string => `
table ip keelson_published
delete table ip keelson_published
table ip keelson_published {
  chain output {
    type filter hook output priority filter;
    oifname != "${ifname}" accept
    ct state established,related accept
    # In the midst of a connection from before the first NIC.
    meta l4proto tcp tcp flags & (syn | ack) != syn accept
    drop
  }
}
`

/** Call before the member gets another default route. Does nothing if all its links are ours. */
export async function answerByEngine(
  member: string | { pid: number },
  { links, routes }: { links: Links; routes: Route[] },
  isOurs: (link: Link) => boolean,
): Promise<void> {
  // Not a bridge: a machine has those of its own engine.
  const link = [...links.values()].find((one) => isPair(one) && !isOurs(one) && addressOf(one))
  const address = link && addressOf(link)
  if (!address) return
  const settings = ['all', link.ifname].map((of) => `ipv4/conf/${of}/rp_filter=0`)
  await setRules(member, rules(link), ['ipv4/ip_forward=0', ...settings])
  const gateway = routes.find(({ dst, dev }) => dst === 'default' && dev === link.ifname)?.gateway
  if (!gateway) return
  const known = await runIn(member, 'ip', ['rule', 'show'])
  await batch('ip', member, [
    ['route', 'replace', 'default', 'via', gateway, 'dev', link.ifname, 'table', table],
    ...(known.includes(`from ${address} lookup ${table}`)
      ? []
      : [['rule', 'add', 'from', address, 'lookup', table]]),
  ])
}

const isPair = ({ linkinfo }: Link): boolean => linkinfo?.info_kind === 'veth'

const addressOf = ({ addr_info }: Link): string | undefined =>
  addr_info.find(({ family }) => family === 'inet')?.local
