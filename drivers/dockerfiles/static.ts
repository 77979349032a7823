import { type BaseImages, firstOf, type Found, type Generated, lines, type Nothing } from './dockerfile.ts'

/** Files that Caddy serves. `fallback`: an address without a file gets index.html, as sites with routes of their own need. */
export const serving = (image: string, copy: string, { fallback }: { fallback: boolean }): string => {
  const rules = [
    ':{$PORT:8080}',
    'root * /srv',
    'encode gzip',
    ...(fallback ? ['try_files {path} /index.html'] : []),
    'file_server',
  ]
  return [
    `FROM ${image}`,
    `RUN printf '%s\\n' ${rules.map((rule) => `'${rule}'`).join(' ')} >/etc/Caddyfile`,
    copy,
    'CMD ["caddy", "run", "--adapter", "caddyfile", "--config", "/etc/Caddyfile"]',
  ].join('\n')
}

const folders = ['', 'public/', 'dist/', 'build/', '_site/', 'site/', 'www/', 'docs/']

/** A folder with index.html. */
export function forStatic(found: Found, images: BaseImages): Generated | Nothing {
  const index = firstOf(
    found,
    folders.map((folder) => `${folder}index.html`),
  )
  if (!index) return { nothing: 'there is no index.html' }
  const folder = index.slice(0, -'index.html'.length)
  const image = images['static'] ?? ''
  return {
    kind: 'static files',
    reasons: [`it has ${index}: ${folder || 'all files'} served by Caddy`.replace('/ served', '/ is served')],
    text: lines(serving(image, `COPY ./${folder} /srv`, { fallback: false })),
    images: [image],
  }
}
