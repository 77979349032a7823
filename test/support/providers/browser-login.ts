// A user who logs in at an OAuth server without a browser: follows its redirects with its cookies, and answers its two pages.

const usual = { login: 'ada' }

/** Where the server sends the browser at the end: the redirect URL with its code, or with its error. */
export async function logIn(
  authorizeUrl: string,
  { login = usual.login, aborts = false }: { login?: string; aborts?: boolean } = {},
): Promise<string> {
  const cookies = new Map<string, string>()

  async function ask(url: string, form?: Record<string, string>): Promise<Response> {
    const answer = await fetch(url, {
      method: form ? 'POST' : 'GET',
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
      ...(form ? { body: new URLSearchParams(form) } : {}),
    })
    for (const cookie of answer.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? []
      if (value) cookies.set(name, value)
      else cookies.delete(name)
    }
    return answer
  }

  const { origin } = new URL(authorizeUrl)
  let answer = await ask(authorizeUrl)
  for (let step = 0; step < 12; step++) {
    const location = answer.headers.get('location')
    if (location === null) {
      const page = await answer.text()
      const [, prompt] = /name="prompt" value="(\w+)"/.exec(page) ?? []
      const [, action] = /action="([^"]+)"/.exec(page) ?? []
      if (!prompt || !action) throw new Error(`${answer.status}: ${page.slice(0, 300)}`)
      answer = aborts
        ? await ask(`${action}/abort`)
        : await ask(action, prompt === 'login' ? { prompt, login, password: 'any' } : { prompt })
      continue
    }
    const next = new URL(location, origin)
    if (next.pathname.endsWith('/connectors/callback')) return next.href
    answer = await ask(next.href)
  }
  throw new Error('the login did not end')
}
